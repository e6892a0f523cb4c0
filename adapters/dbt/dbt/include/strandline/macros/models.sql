{# Materialisations. The rows of a model are first written to a table of their own, `..__dbt_tmp`. #}

{% materialization table, adapter='strandline' %}
  {{ return(strandline__build(sql, true)) }}
{% endmaterialization %}

{% materialization incremental, adapter='strandline' %}
  {{ return(strandline__build(sql, should_full_refresh())) }}
{% endmaterialization %}

{% macro strandline__build(sql, whole) %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set staged = make_temp_relation(target).incorporate(type='table') -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {%- if existing is none -%}
    {% call statement('main') %}{{ create_table_as(False, target, sql) }}{% endcall %}
  {%- else -%}
    {% do adapter.drop_relation(staged) %}
    {% call statement('staged') %}{{ create_table_as(not whole, staged, sql) }}{% endcall %}
    {%- if not whole -%}
      {{ strandline__add_rows(staged, existing) }}
    {%- elif adapter.is_alike(staged, existing) -%}
      {% call statement('main') %}
        {{ strandline__merge_sql(existing, staged, adapter.key_of(existing), adapter.get_columns_in_relation(existing), none, true) }}
      {% endcall %}
    {%- else -%}
      {% do adapter.drop_relation(existing) %}
      {% call statement('main') %}alter table {{ staged }} rename to {{ target }}{% endcall %}
    {%- endif -%}
    {% do adapter.drop_relation(staged) %}
  {%- endif -%}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target]}) }}
{% endmacro %}

{% macro strandline__add_rows(staged, existing) %}
  {%- set on_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {%- set columns = process_schema_changes(on_change, staged, existing) or adapter.get_columns_in_relation(existing) -%}
  {%- set add = adapter.get_incremental_strategy_macro(context, config.get('incremental_strategy') or 'default') -%}
  {% call statement('main') %}
    {{ add({'target_relation': existing, 'temp_relation': staged, 'dest_columns': columns,
            'unique_key': config.get('unique_key') or adapter.key_of(existing),
            'incremental_predicates': config.get('predicates') or config.get('incremental_predicates')}) }}
  {% endcall %}
{% endmacro %}

{% macro strandline__get_incremental_default_sql(arg_dict) -%}
  {{ return(get_incremental_merge_sql(arg_dict)) }}
{%- endmacro %}

{% macro strandline__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) -%}
  {{ strandline__merge_sql(target, source, [unique_key] if unique_key is string else unique_key, dest_columns, incremental_predicates, false) }}
{%- endmacro %}

{# A row that does not change is not written: changefeeds and increments have only what differs. #}
{% macro strandline__merge_sql(target, source, unique_key, dest_columns, predicates, whole) -%}
  {%- set key = adapter.key_of(target) -%}
  {%- set names = dest_columns | map(attribute='name') | list -%}
  {%- set updated = [] -%}
  {%- for name in get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), dest_columns) -%}
    {%- set name = (name | string).strip('`"') -%}
    {%- if name not in key %}{% do updated.append(adapter.quote(name)) %}{% endif -%}
  {%- endfor -%}
  merge into {{ target }} as DBT_INTERNAL_DEST
  using {{ source }} as DBT_INTERNAL_SOURCE
  on {% for name in unique_key %}{{ 'and ' if not loop.first }}DBT_INTERNAL_DEST.{{ adapter.quote(name) }} = DBT_INTERNAL_SOURCE.{{ adapter.quote(name) }} {% endfor %}
  {%- for predicate in predicates or [] %}and ({{ predicate }}) {% endfor %}
  {%- if updated %}
  when matched and ({% for name in updated %}{{ ' or ' if not loop.first }}DBT_INTERNAL_DEST.{{ name }} is distinct from DBT_INTERNAL_SOURCE.{{ name }}{% endfor %})
    then update set {% for name in updated %}{{ ', ' if not loop.first }}{{ name }} = DBT_INTERNAL_SOURCE.{{ name }}{% endfor %}
  {%- endif %}
  when not matched then insert ({{ strandline__quoted(names) }})
    values ({% for name in names %}{{ ', ' if not loop.first }}DBT_INTERNAL_SOURCE.{{ adapter.quote(name) }}{% endfor %})
  {%- if whole %}
  when not matched by source then delete
  {%- endif %}
{%- endmacro %}
