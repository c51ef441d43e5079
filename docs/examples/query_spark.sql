-- Spark
SELECT date(ts) AS day, count(*) AS orders, sum(amount) AS amount FROM lake.shop.orders GROUP BY 1 ORDER BY 1;
SELECT * FROM lake.shop.orders VERSION AS OF 8126360687799756521;
SELECT committed_at, snapshot_id, operation, summary FROM lake.shop.orders.snapshots;
