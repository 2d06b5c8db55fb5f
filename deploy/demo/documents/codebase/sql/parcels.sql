-- Tables and reports of the scan gateway. The service writes `parcel` and `event`; everything else is read only for it.

CREATE TABLE tunnel (
    tunnel_id   TEXT PRIMARY KEY,
    depot       INTEGER NOT NULL CHECK (depot BETWEEN 1 AND 8),
    customer    TEXT,
    delivered   DATE NOT NULL,
    board       TEXT NOT NULL DEFAULT 'PN-30922'
);

CREATE TABLE parcel (
    tunnel_id   TEXT NOT NULL REFERENCES tunnel (tunnel_id),
    sequence    INTEGER NOT NULL,
    first_ms    BIGINT NOT NULL,
    label       TEXT,                       -- null is a no-read
    booked_by   TEXT NOT NULL DEFAULT 'gateway' CHECK (booked_by IN ('gateway', 'hand')),
    PRIMARY KEY (tunnel_id, sequence, first_ms)
);

CREATE TABLE event (
    event_id    INTEGER PRIMARY KEY,
    tunnel_id   TEXT NOT NULL REFERENCES tunnel (tunnel_id),
    code        TEXT NOT NULL,
    at_ms       BIGINT NOT NULL,
    detail      TEXT
);

-- No-read rate of each tunnel and hour, in per cent. The lamp uses the last hundred parcels and differs from this.
CREATE VIEW no_read_rate AS
SELECT tunnel_id,
       first_ms / 3600000 AS hour,
       COUNT(*) AS parcels,
       100.0 * SUM(CASE WHEN label IS NULL THEN 1 ELSE 0 END) / COUNT(*) AS no_read_pct
FROM parcel
GROUP BY tunnel_id, first_ms / 3600000;

-- Parcels that exist twice: sent again by the gateway after somebody had booked them by hand at exit 40.
CREATE VIEW booked_twice AS
SELECT gateway.tunnel_id, gateway.label, gateway.first_ms, hand.first_ms AS by_hand_ms
FROM parcel AS gateway
JOIN parcel AS hand ON hand.label = gateway.label AND hand.booked_by = 'hand'
WHERE gateway.booked_by = 'gateway' AND gateway.first_ms > hand.first_ms;

-- Tunnels whose board is older than the certificate store (PN-30921), to be changed by March 2027.
CREATE VIEW old_boards AS
SELECT tunnel_id, depot, customer FROM tunnel WHERE board = 'PN-30921';
