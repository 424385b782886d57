-- Which orders are live, said once. A live order holds its buyer's place and a unit of the sale.
--
-- The planner puts the body in place of the call, so that queries find the partial index on live orders (0002), whose
-- condition this is.
CREATE FUNCTION is_live(status text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT status IN ('unpaid', 'paid', 'redeemed', 'refunding') $$;
