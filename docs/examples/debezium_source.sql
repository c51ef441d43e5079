CREATE TABLE heartbeat (id int PRIMARY KEY, at timestamptz);
INSERT INTO heartbeat VALUES (1, now());
-- Only for an incremental snapshot.
CREATE TABLE debezium_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data text);
-- For each table with large values.
ALTER TABLE customers REPLICA IDENTITY FULL;
