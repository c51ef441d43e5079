-- DuckDB, without a catalog
LOAD iceberg;
SELECT ts::DATE AS day, count(*) AS orders, sum(amount) AS amount
FROM iceberg_scan('/tmp/lake/warehouse/shop/orders/metadata/00002-….metadata.json')
GROUP BY day ORDER BY day;
