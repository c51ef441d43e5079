DELETE FROM shop.customers
WHERE _lsn < (SELECT max(_lsn) FROM shop.customers WHERE _op = 'r');
