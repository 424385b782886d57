-- Two roles for a database: flash_sale_owner owns the tables and runs `flash-sale migrate`; flash_sale_app runs the service
-- and all other commands, and can't change the schema. Run once as a superuser, in the database of the service, before or
-- after its first migration:
--
--   psql --dbname shop --file deploy/postgres/roles.sql
--   psql --dbname shop --command '\password flash_sale_owner' --command '\password flash_sale_app'
--
-- `flash-sale doctor` names each right that is missing.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'flash_sale_owner') THEN
        CREATE ROLE flash_sale_owner LOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'flash_sale_app') THEN
        CREATE ROLE flash_sale_app LOGIN;
    END IF;
    EXECUTE format('ALTER DATABASE %I OWNER TO flash_sale_owner', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO flash_sale_app', current_database());
END $$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO flash_sale_owner;
GRANT USAGE ON SCHEMA public TO flash_sale_app;

-- What is there.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO flash_sale_app;
GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA public TO flash_sale_app;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO flash_sale_app;

-- What the owner's migrations will make.
ALTER DEFAULT PRIVILEGES FOR ROLE flash_sale_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO flash_sale_app;
ALTER DEFAULT PRIVILEGES FOR ROLE flash_sale_owner IN SCHEMA public
    GRANT USAGE, SELECT, UPDATE ON SEQUENCES TO flash_sale_app;
ALTER DEFAULT PRIVILEGES FOR ROLE flash_sale_owner IN SCHEMA public
    GRANT EXECUTE ON FUNCTIONS TO flash_sale_app;
