-- Order ids are made where orders are: those of a lane by the claim script, those of regular coupons by their INSERT.
DROP TABLE id_ceilings;

-- The lowest 26 bits of the id of a regular coupon's order.
CREATE SEQUENCE regular_orders MINVALUE 0 MAXVALUE 67108863 CYCLE;

-- An order id has six bits for the lane, and 63 stands for regular coupons.
ALTER TABLE settings DROP CONSTRAINT settings_lanes_check, ADD CONSTRAINT settings_lanes_check CHECK (lanes BETWEEN 1 AND 63);
ALTER TABLE lanes DROP CONSTRAINT lanes_lane_check, ADD CONSTRAINT lanes_lane_check CHECK (lane BETWEEN 0 AND 62);
