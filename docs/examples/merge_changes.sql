-- Spark SQL, and DuckDB from 1.4 on: the newest change of each key decides.
MERGE INTO shop.customers AS t
USING (
  SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY kafka_offset DESC) AS newest
    FROM shop.customer_changes
    WHERE kafka_offset >= 0               -- or: behind what was merged before, by partition
  ) AS ranked
  WHERE newest = 1
) AS s
ON t.id = s.id
WHEN MATCHED AND s._is_deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET name = s.name, credit = s.credit
WHEN NOT MATCHED AND NOT s._is_deleted THEN INSERT (id, name, credit) VALUES (s.id, s.name, s.credit)
