{# Snapshots: dbt's own, with dbt_scd_id as the primary key. #}

{% macro strandline__snapshot_hash_arguments(args) -%}
  md5(concat_ws('|', {% for arg in args %}{{ ', ' if not loop.first }}coalesce(cast({{ arg }} as string), ''){% endfor %}))
{%- endmacro %}

{% macro strandline__post_snapshot(staging_relation) -%}
  {% do adapter.drop_relation(staging_relation) %}
{%- endmacro %}
