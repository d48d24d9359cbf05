WITH gone_waits AS (
    DELETE FROM {schema}.waits WHERE run_id = ANY ($1::text::text[])
), gone_inbox AS (
    DELETE FROM {schema}.inbox WHERE run_id = ANY ($1::text::text[])
), gone_units AS (
    DELETE FROM {schema}.units WHERE run_id = ANY ($1::text::text[])
), gone_items AS (
    DELETE FROM {schema}.items WHERE run_id = ANY ($1::text::text[])
), gone_steps AS (
    DELETE FROM {schema}.steps WHERE run_id = ANY ($1::text::text[])
), gone_interactions AS (
    DELETE FROM {schema}.interactions WHERE run_id = ANY ($1::text::text[])
), gone_names AS (
    DELETE FROM {schema}.names WHERE run_id = ANY ($1::text::text[])
), gone_ledger AS (
    DELETE FROM {schema}.ledger WHERE run_id = ANY ($1::text::text[])
)
DELETE FROM {schema}.runs WHERE id = ANY ($1::text::text[])
