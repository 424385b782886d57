-- Passwords of the roles that deploy/postgres/roles.sql makes, from the environment of the container.
\getenv owner POSTGRES_PASSWORD
\getenv app POSTGRES_APP_PASSWORD
ALTER ROLE flash_sale_owner PASSWORD :'owner';
ALTER ROLE flash_sale_app PASSWORD :'app';
