{# Tables: creation with a primary key and indexes, renaming, removal, columns. #}

{% macro strandline__key(relation) -%}
  {%- if model.resource_type == 'snapshot' -%}
    {{ return([(config.get('snapshot_table_column_names') or {}).get('dbt_scd_id') or 'dbt_scd_id']) }}
  {%- endif -%}
  {%- if model.resource_type == 'test' -%}
    {{ exceptions.raise_compiler_error("the failures of a test cannot be stored: they have no primary key. Leave --store-failures and store_failures out") }}
  {%- endif -%}
  {%- set key = config.get('key') or config.get('unique_key') -%}
  {%- if not key -%}
    {{ exceptions.raise_compiler_error(
        relation.identifier ~ " needs a primary key. Set it: {{ config(key='id') }} in the model, or +key: id in dbt_project.yml") }}
  {%- endif -%}
  {{ return([key] if key is string else key) }}
{%- endmacro %}

{% macro strandline__quoted(columns) -%}
  {%- set names = [] -%}
  {%- for column in columns %}{% do names.append(adapter.quote(column)) %}{% endfor -%}
  {{ return(names | join(', ')) }}
{%- endmacro %}

{% macro strandline__key_and_indexes(relation, with_indexes) -%}
  primary key ({{ strandline__quoted(strandline__key(relation)) }})
  {%- for index in (config.get('indexes') or [] if with_indexes else []) %},
  index {{ adapter.quote(index.name or 'by_' ~ index.columns | join('_')) }} global
    {{- ' unique' if index.unique }} {{ 'async' if index.asynchronous else 'sync' }} on ({{ strandline__quoted(index.columns) }})
    {%- if index.cover %} cover ({{ strandline__quoted(index.cover) }}){% endif %}
  {%- endfor %}
{%- endmacro %}

{% macro strandline__create_table_as(temporary, relation, compiled_code) -%}
  {%- if config.get('contract').enforced -%}
    {{ exceptions.raise_compiler_error("contracts are not supported: the columns of a table are those of its query") }}
  {%- endif -%}
  create table {{ relation }} (
  {{ strandline__key_and_indexes(relation, not temporary) }}
  ) as
  {{ compiled_code }}
{%- endmacro %}

{% macro strandline__create_view_as(relation, sql) -%}
  {{ exceptions.raise_compiler_error(
      "Strandline has no views. Use materialized='table' with a key, 'incremental', or 'ephemeral', in the model "
      ~ relation.identifier ~ " or in dbt_project.yml: +materialized: ephemeral") }}
{%- endmacro %}

{% macro strandline__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation') %}alter table {{ from_relation }} rename to {{ to_relation }}{% endcall %}
{%- endmacro %}

{% macro strandline__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=False) %}{{ strandline__drop_table(relation) }}{% endcall %}
{%- endmacro %}

{% macro strandline__drop_table(relation) -%}
  drop table if exists {{ relation }}{{ ' purge' if relation.identifier.endswith('__dbt_tmp') }}
{%- endmacro %}

{% macro strandline__truncate_relation(relation) -%}
  {% call statement('truncate_relation') %}delete from {{ relation }}{% endcall %}
{%- endmacro %}

{% macro strandline__alter_column_type(relation, column_name, new_column_type) -%}
  {{ exceptions.raise_compiler_error(
      "the type of column " ~ column_name ~ " of " ~ relation ~ " cannot change: run dbt with --full-refresh") }}
{%- endmacro %}

{% macro strandline__current_timestamp() -%}
  current_timestamp()
{%- endmacro %}
