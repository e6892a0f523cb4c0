{# Seeds: a CSV file becomes a table with a key. Its rows replace those of the table in one commit. #}

{% macro strandline__create_csv_table(model, agate_table) %}
  {%- set types = model['config'].get('column_types', {}) -%}
  {% set sql %}
  create table {{ this }} (
  {%- for name in agate_table.column_names %}
    {{ adapter.quote(name) }} {{ types.get(name, adapter.convert_type(agate_table, loop.index0)) }}{{ ' not null' if name in strandline__key(this) }},
  {%- endfor %}
    {{ strandline__key_and_indexes(this, true) }}
  )
  {% endset %}
  {% call statement('_') %}{{ sql }}{% endcall %}
  {{ return(sql) }}
{% endmacro %}

{% macro strandline__reset_csv_table(model, full_refresh, old_relation, agate_table) %}
  {%- if full_refresh -%}
    {% do adapter.drop_relation(old_relation) %}
    {{ return(create_csv_table(model, agate_table)) }}
  {%- endif -%}
  {{ return('delete from ' ~ old_relation) }}
{% endmacro %}

{% macro strandline__load_csv_rows(model, agate_table) %}
  {%- set row = '(' ~ (['?'] * (agate_table.column_names | length)) | join(', ') ~ ')' -%}
  {%- set values = [] -%}
  {%- for each in agate_table.rows %}{% do values.extend(each) %}{% endfor -%}
  {% set sql -%}
    delete from {{ this }}
    {%- if agate_table.rows %};
    insert into {{ this }} ({{ strandline__quoted(agate_table.column_names) }}) values
    {{ ([row] * (agate_table.rows | length)) | join(', ') }}
    {%- endif %}
  {%- endset %}
  {% do adapter.add_query(sql, bindings=values, abridge_sql_log=True) %}
  {{ return(sql) }}
{% endmacro %}
