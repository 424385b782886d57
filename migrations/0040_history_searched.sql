-- The history is searched as `orders` are (0024, 0025), and a payment of it is found by its id. While these are built, no
-- order moves into the history or back; readers, claims and orders don't wait.
CREATE INDEX order_history_of_coupon ON order_history (coupon_id, status, claimed_at, id);
CREATE INDEX order_history_of_status ON order_history (status, claimed_at, id);
CREATE INDEX payment_history_id ON payment_history (id);
CREATE INDEX payment_history_settled ON payment_history (id) WHERE status IN ('refunded', 'closed');
