-- Spark SQL, and DuckDB from 1.4 on: a name that a change did not tell is the one that was told last.
MERGE INTO shop.customers AS t
USING (
  SELECT newest.id, newest._is_deleted, newest.credit, told.name, told.id IS NOT NULL AS is_told
  FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY kafka_offset DESC) AS place
    FROM shop.customer_changes
    WHERE kafka_offset >= 0               -- or: behind what was merged before, by partition
  ) AS newest
  LEFT JOIN (
    SELECT id, name, row_number() OVER (PARTITION BY id ORDER BY kafka_offset DESC) AS place
    FROM shop.customer_changes
    WHERE kafka_offset >= 0               -- the same changes
      AND (name IS NULL OR name <> '__debezium_unavailable_value')
  ) AS told ON told.id = newest.id AND told.place = 1
  WHERE newest.place = 1
) AS s
ON t.id = s.id
WHEN MATCHED AND s._is_deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET name = CASE WHEN s.is_told THEN s.name ELSE t.name END, credit = s.credit
WHEN NOT MATCHED AND NOT s._is_deleted THEN INSERT (id, name, credit)
  VALUES (s.id, CASE WHEN s.is_told THEN s.name ELSE '__debezium_unavailable_value' END, s.credit)
