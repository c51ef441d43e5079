INSERT INTO debezium_signal (id, type, data) VALUES (
    'first load', 'execute-snapshot',
    '{"type": "incremental", "data-collections": ["public.customers", "public.order_lines"]}'
);
