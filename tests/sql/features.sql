select abs(severity) from claims_v as c
select ceil(amount) from claims_v as c
select ceiling(amount) from claims_v as c
select floor(amount) from claims_v as c
select round(amount, 1) from claims_v as c
select trunc(amount) from claims_v as c
select sign(severity) from claims_v as c
select sqrt(severity) from claims_v as c
select cbrt(severity) from claims_v as c
select ln(severity) from claims_v as c
select log(severity) from claims_v as c
select log2(severity) from claims_v as c
select log10(severity) from claims_v as c
select exp(severity) from claims_v as c
select pow(severity,2) from claims_v as c
select power(severity,2) from claims_v as c
select mod(severity,2) from claims_v as c
select fmod(severity,2) from claims_v as c
select greatest(severity,2) from claims_v as c
select least(severity,2) from claims_v as c
select lower(status) from claims_v as c
select upper(status) from claims_v as c
select lcase(status) from claims_v as c
select ucase(status) from claims_v as c
select length(status) from claims_v as c
select len(status) from claims_v as c
select strlen(status) from claims_v as c
select left(status,2) from claims_v as c
select right(status,2) from claims_v as c
select substr(status,2) from claims_v as c
select substring(status,2,2) from claims_v as c
select substring(status from 2 for 2) from claims_v as c
select trim(status) from claims_v as c
select trim(both 'o' from status) from claims_v as c
select trim(leading 'o' from status) from claims_v as c
select trim(trailing 'n' from status) from claims_v as c
select trim(status,'o') from claims_v as c
select ltrim(status,'o') from claims_v as c
select rtrim(status,'n') from claims_v as c
select replace(status,'o','x') from claims_v as c
select concat(status,1,null) from claims_v as c
select concat_ws('-',status,region) from claims_v as c
select split_part(status,'e',1) from claims_v as c
select string_split(status,'e') from claims_v as c
select str_split(status,'e') from claims_v as c
select starts_with(status,'o') from claims_v as c
select prefix(status,'o') from claims_v as c
select ends_with(status,'n') from claims_v as c
select suffix(status,'n') from claims_v as c
select contains(status,'p') from claims_v as c
select strpos(status,'p') from claims_v as c
select instr(status,'p') from claims_v as c
select position('p' in status) from claims_v as c
select reverse(status) from claims_v as c
select translate(status,'o','x') from claims_v as c
select regexp_matches(status,'o') from claims_v as c
select regexp_full_match(status,'o.*') from claims_v as c
select regexp_extract(status,'o(.)',1) from claims_v as c
select regexp_extract(status,'(o)(.)',['a','b']) from claims_v as c
select regexp_replace(status,'o','x','g') from claims_v as c
select date_trunc('month',reported_at) from claims_v as c
select datetrunc('month',reported_at) from claims_v as c
select date_part('year',reported_at) from claims_v as c
select date_part(['year','month'],reported_at) from claims_v as c
select datepart('year',reported_at) from claims_v as c
select date_diff('day',reported_at,closed_at) from claims_v as c
select datediff('day',reported_at,closed_at) from claims_v as c
select date_sub('day',reported_at,closed_at) from claims_v as c
select datesub('day',reported_at,closed_at) from claims_v as c
select date_add(reported_at, INTERVAL 1 DAY) from claims_v as c
select extract(year from reported_at) from claims_v as c
select extract('month' from reported_at) from claims_v as c
select extract(epoch from reported_at) from claims_v as c
select extract(doy from reported_at) from claims_v as c
select extract(dow from reported_at) from claims_v as c
select extract(week from reported_at) from claims_v as c
select extract(quarter from reported_at) from claims_v as c
select extract(hour from closed_at - reported_at) from claims_v as c
select year(reported_at) from claims_v as c
select quarter(reported_at) from claims_v as c
select month(reported_at) from claims_v as c
select week(reported_at) from claims_v as c
select weekofyear(reported_at) from claims_v as c
select day(reported_at) from claims_v as c
select dayofmonth(reported_at) from claims_v as c
select dayofweek(reported_at) from claims_v as c
select isodow(reported_at) from claims_v as c
select dayofyear(reported_at) from claims_v as c
select dayname(reported_at) from claims_v as c
select monthname(reported_at) from claims_v as c
select hour(reported_at) from claims_v as c
select minute(reported_at) from claims_v as c
select second(reported_at) from claims_v as c
select last_day(reported_at) from claims_v as c
select strftime(reported_at,'%Y-%m') from claims_v as c
select make_date(2020,1,2) from claims_v as c
select make_timestamp(2020,1,2,3,4,5.5) from claims_v as c
select epoch(reported_at) from claims_v as c
select age(closed_at,reported_at) from claims_v as c
select age(reported_at) from claims_v as c
select time_bucket(INTERVAL '1 month', reported_at) from claims_v as c
select to_days(3) from claims_v as c
select to_hours(3) from claims_v as c
select to_minutes(3) from claims_v as c
select to_months(3) from claims_v as c
select to_years(3) from claims_v as c
select to_weeks(3) from claims_v as c
select current_date from claims_v as c
select today() from claims_v as c
select current_date - interval 30 day from claims_v as c
select current_date > reported_at from claims_v as c
select coalesce(reserve,0) from claims_v as c
select ifnull(reserve,0) from claims_v as c
select nullif(severity,1) from claims_v as c
select if(severity>1,'a','b') from claims_v as c
select typeof(amount) from claims_v as c
select isfinite(amount::double) from claims_v as c
select isnan(amount::double) from claims_v as c
select isinf(amount::double) from claims_v as c
select list_value(1,2) from claims_v as c
select list_pack(1,2) from claims_v as c
select list_contains(tags,'urgent') from claims_v as c
select list_has(tags,'urgent') from claims_v as c
select array_contains(tags,'urgent') from claims_v as c
select array_has(tags,'urgent') from claims_v as c
select list_has_any(tags,['urgent']) from claims_v as c
select array_has_any(tags,['urgent']) from claims_v as c
select list_has_all(tags,['urgent']) from claims_v as c
select array_has_all(tags,['urgent']) from claims_v as c
select list_position(tags,'urgent') from claims_v as c
select array_position(tags,'urgent') from claims_v as c
select list_indexof(tags,'urgent') from claims_v as c
select list_transform(tags, lambda x: upper(x)) from claims_v as c
select list_transform(tags, lambda x, i: concat(x, i)) from claims_v as c
select array_transform(tags, lambda x: upper(x)) from claims_v as c
select list_apply(tags, lambda x: upper(x)) from claims_v as c
select list_filter(tags, lambda x: x > 'f') from claims_v as c
select array_filter(tags, lambda x: x > 'f') from claims_v as c
select list_sort(tags) from claims_v as c
select list_sort(tags,'DESC') from claims_v as c
select list_sort(tags,'DESC','NULLS FIRST') from claims_v as c
select array_sort(tags) from claims_v as c
select list_reverse_sort(tags) from claims_v as c
select array_reverse_sort(tags) from claims_v as c
select list_sort(list_distinct(tags)) from claims_v as c
select list_unique(tags) from claims_v as c
select list_sum([1,2]) from claims_v as c
select list_avg([1,2]) from claims_v as c
select list_min(tags) from claims_v as c
select list_max(tags) from claims_v as c
select list_count(tags) from claims_v as c
select list_first(tags) from claims_v as c
select list_last(tags) from claims_v as c
select list_aggregate(tags,'count') from claims_v as c
select list_aggregate(tags,'string_agg',',') from claims_v as c
select array_aggregate(tags,'min') from claims_v as c
select list_string_agg(tags) from claims_v as c
select array_to_string(tags,',') from claims_v as c
select array_length(tags) from claims_v as c
select flatten([tags,tags]) from claims_v as c
select list_slice(tags,1,1) from claims_v as c
select array_slice(tags,1,1) from claims_v as c
select list_extract(tags,1) from claims_v as c
select array_extract(tags,1) from claims_v as c
select list_element(tags,1) from claims_v as c
select list_concat(tags,tags) from claims_v as c
select array_concat(tags,tags) from claims_v as c
select list_zip(tags,tags) from claims_v as c
select list_intersect(tags,['urgent']) from claims_v as c
select range(3) from claims_v as c
select range(1,3) from claims_v as c
select generate_series(1,3) from claims_v as c
select range(severity) from claims_v as c
select unnest(tags) from claims_v as c
select unnest(loss) from claims_v as c
select unnest([loss], recursive := true) from claims_v as c
select unnest([{'a':1,'b':2}], max_depth := 2) from claims_v as c
select struct_pack(a := 1, b := status) from claims_v as c
select struct_extract(loss,'cause') from claims_v as c
select struct_extract_at(loss,1) from claims_v as c
select row(1,status) from claims_v as c
select (1,status) from claims_v as c
select map(['a'],[1]) from claims_v as c
select map {'a':1} from claims_v as c
select map_keys(map {'a':1}) from claims_v as c
select map_values(map {'a':1}) from claims_v as c
select map_extract(map {'a':1},'a') from claims_v as c
select map_extract_value(map {'a':1},'a') from claims_v as c
select map_contains(map {'a':1},'a') from claims_v as c
select map_entries(map {'a':1}) from claims_v as c
select element_at(map {'a':1},'a') from claims_v as c
select cardinality(map {'a':1}) from claims_v as c
select map {'a':1}['a'] from claims_v as c
select loss.cause from claims_v as c
select loss['cause'] from claims_v as c
select loss.cause.upper() from claims_v as c
select (loss).cause from claims_v as c
select c.loss.cause from claims_v as c
select c.tags[1] from claims_v as c
select tags[1:2] from claims_v as c
select tags[-1] from claims_v as c
select tags[:1] from claims_v as c
select tags[2:] from claims_v as c
select status[1] from claims_v as c
select status[1:2] from claims_v as c
select [x for x in tags if x > 'f'] from claims_v as c
select {'a': severity, 'b': {'c': tags}} from claims_v as c
select {'a': 1}.a from claims_v as c
select status::varchar(5) from claims_v as c
select cast(amount as double) from claims_v as c
select cast(severity as varchar) from claims_v as c
select try_cast(status as int) from claims_v as c
select amount::int from claims_v as c
select '2020-01-01'::date from claims_v as c
select date '2020-01-01' + 3 from claims_v as c
select timestamp '2020-01-01 00:00:00' + interval '1 hour' from claims_v as c
select time '10:00:00' from claims_v as c
select interval '1 day 2 hours' from claims_v as c
select interval (severity) day from claims_v as c
select interval 1 year + interval 2 month from claims_v as c
select -severity from claims_v as c
select not severity > 1 from claims_v as c
select severity between 1 and 3 from claims_v as c
select severity not between 1 and 3 from claims_v as c
select status in ('open','closed') from claims_v as c
select status not in ('open') from claims_v as c
select (status,severity) in (('open',1),('closed',2)) from claims_v as c
select status like 'o%' from claims_v as c
select status not like 'o%' from claims_v as c
select status ilike 'O%' from claims_v as c
select status like 'o!%' escape '!' from claims_v as c
select reserve is null from claims_v as c
select reserve is not null from claims_v as c
select reserve isnull from claims_v as c
select reserve notnull from claims_v as c
select (severity > 1) is true from claims_v as c
select (severity > 1) is not false from claims_v as c
select (reserve > 1) is unknown from claims_v as c
select severity is distinct from 1 from claims_v as c
select case severity when 1 then 'a' when 2 then 'b' else 'c' end from claims_v as c
select case when severity > 1 then 'a' end from claims_v as c
select severity // 2 from claims_v as c
select severity % 2 from claims_v as c
select severity / 2 from claims_v as c
select severity ** 2 from claims_v as c
select severity ^ 2 from claims_v as c
select 1e3 from claims_v as c
select .5 from claims_v as c
select 1_000 from claims_v as c
select true from claims_v as c
select null from claims_v as c
select e'a\n' from claims_v as c
select $$x$$ from claims_v as c
select $t$x$t$ from claims_v as c
select 'it''s' from claims_v as c
select exists(select 1) from claims_v as c
select (select max(amount) from claims_v) from claims_v as c
select severity = any([1,2]) from claims_v as c
select severity = any(select approval_level from approvals_v) from claims_v as c
select severity >= all(select approval_level from approvals_v) from claims_v as c
select array[1,2] from claims_v as c
select c from claims_v as c
select c.* from claims_v as c
select * exclude (tags) from claims_v as c
select * exclude tags from claims_v as c
select * replace (1 as severity) from claims_v as c
select * rename (severity as s) from claims_v as c
select columns('.*_id') from claims_v as c
select columns(lambda x: x like '%id') from claims_v as c
select columns(['severity','status']) from claims_v as c
select columns(* exclude (tags, loss)) from claims_v as c
select * like '%id' from claims_v as c
select 'a' in tags from claims_v as c
select severity + 1 as n, n + 1 as m from claims_v as c
select status: region from claims_v as c
select C.STATUS from claims_v as c
select "status" from claims_v as c
select row_number() over (order by claim_id) from claims_v as c
select rank() over (order by severity) from claims_v as c
select dense_rank() over (order by severity) from claims_v as c
select percent_rank() over (order by claim_id) from claims_v as c
select cume_dist() over (order by claim_id) from claims_v as c
select ntile(3) over (order by claim_id) from claims_v as c
select lag(severity) over (order by claim_id) from claims_v as c
select lag(severity, 2, 0) over (order by claim_id) from claims_v as c
select lead(severity) over (partition by status order by claim_id) from claims_v as c
select first_value(severity) over (order by claim_id) from claims_v as c
select last_value(severity) over (order by claim_id) from claims_v as c
select nth_value(severity, 2) over (order by claim_id) from claims_v as c
select first_value(reserve ignore nulls) over (order by claim_id) from claims_v as c
select last_value(reserve ignore nulls) over (order by claim_id rows between unbounded preceding and 1 preceding) from claims_v as c
select sum(amount) over (order by claim_id rows 2 preceding) from claims_v as c
select avg(amount) over (partition by region) from claims_v as c
select count(*) over () from claims_v as c
select sum(amount) over (order by reported_at range between interval 30 days preceding and current row) from claims_v as c
select sum(amount) over (order by severity groups between 1 preceding and 1 following) from claims_v as c
select sum(amount) over (order by claim_id rows between 1 preceding and 1 following exclude current row) from claims_v as c
select string_agg(status, ',') over (order by claim_id rows between 1 preceding and current row) from claims_v as c
select count(distinct status) over (partition by region) from claims_v as c
select sum(sum(amount)) over () from claims_v as c
select count(*) from claims_v
select count() from claims_v
select count(reserve) from claims_v
select count(distinct status) from claims_v
select count(distinct (status, region)) from claims_v
select count_star() from claims_v
select count_if(severity > 1) from claims_v
select countif(severity > 1) from claims_v
select sum(amount) from claims_v
select sum(distinct severity) from claims_v
select avg(amount) from claims_v
select mean(amount) from claims_v
select min(amount) from claims_v
select max(amount) from claims_v
select max(severity, 2) from claims_v
select median(amount) from claims_v
select mode(tenant_id) from claims_v
select quantile(amount, 0.5) from claims_v
select quantile_cont(amount, 0.5) from claims_v
select quantile_cont(amount, [0.1, 0.9]) from claims_v
select quantile_disc(severity, 0.5) from claims_v
select percentile_cont(0.5) within group (order by amount) from claims_v
select percentile_disc(0.5) within group (order by severity desc) from claims_v
select stddev(amount) from claims_v
select stddev_samp(amount) from claims_v
select stddev_pop(amount) from claims_v
select variance(amount) from claims_v
select var_samp(amount) from claims_v
select var_pop(amount) from claims_v
select corr(amount, severity) from claims_v
select covar_pop(amount, severity) from claims_v
select covar_samp(amount, severity) from claims_v
select regr_slope(amount, severity) from claims_v
select regr_intercept(amount, severity) from claims_v
select regr_r2(amount, severity) from claims_v
select regr_count(amount, severity) from claims_v
select string_agg(status, ',' order by claim_id) from claims_v
select string_agg(distinct status, ',' order by status) from claims_v
select string_agg(status order by claim_id) from claims_v
select group_concat(status, ';' order by claim_id) from claims_v
select listagg(status, ',' order by claim_id) from claims_v
select list(severity order by claim_id) from claims_v
select array_agg(severity order by claim_id desc) from claims_v
select array_agg(distinct severity order by severity) from claims_v
select arg_max(claim_id, amount) from claims_v
select arg_min(claim_id, amount) from claims_v
select arg_max(claim_id, amount, 3) from claims_v
select max_by(claim_id, amount) from claims_v
select min_by(claim_id, amount) from claims_v
select first(status order by claim_id) from claims_v
select last(status order by claim_id) from claims_v
select any_value(tenant_id) from claims_v
select bool_and(severity > 0) from claims_v
select bool_or(severity > 4) from claims_v
select product(severity::double) from claims_v
select histogram(severity) from claims_v
select approx_count_distinct(status) from claims_v
select approx_quantile(amount, 0.5) from claims_v
select entropy(severity) from claims_v
select skewness(amount) from claims_v
select kurtosis(amount) from claims_v
select geomean(severity) from claims_v
select geometric_mean(severity) from claims_v
select mad(amount) from claims_v
select fsum(amount::double) from claims_v
select favg(amount::double) from claims_v
select weighted_avg(amount, severity) from claims_v
select wavg(amount, severity) from claims_v
select sum(amount) filter (where severity > 2) from claims_v
select sum(amount) filter (severity > 2) from claims_v
select sum(amount) / nullif(count(*), 0) from claims_v
select round(100.0 * sum(amount) filter (where status = 'open') / sum(amount), 2) from claims_v
select min(columns('.*_id')) from claims_v
select sum(case when status = 'open' then 1 else 0 end) from claims_v
select max(reported_at) - min(reported_at) from claims_v
select coalesce(sum(amount), 0)::decimal(18,2) from claims_v
select list_sort(list(distinct status)) from claims_v
select bool_or(claimant_name like '%*') from claims_v
select min(claimant_email) from claims_v
select region, count(*) from claims_v group by region
select region, count() from claims_v group by region
select region, count(reserve) from claims_v group by region
select region, count(distinct status) from claims_v group by region
select region, count(distinct (status, region)) from claims_v group by region
select region, count_star() from claims_v group by region
select region, count_if(severity > 1) from claims_v group by region
select region, countif(severity > 1) from claims_v group by region
select region, sum(amount) from claims_v group by region
select region, sum(distinct severity) from claims_v group by region
select region, avg(amount) from claims_v group by region
select region, mean(amount) from claims_v group by region
select region, min(amount) from claims_v group by region
select region, max(amount) from claims_v group by region
select region, max(severity, 2) from claims_v group by region
select region, median(amount) from claims_v group by region
select region, mode(tenant_id) from claims_v group by region
select region, quantile(amount, 0.5) from claims_v group by region
select region, quantile_cont(amount, 0.5) from claims_v group by region
select region, quantile_cont(amount, [0.1, 0.9]) from claims_v group by region
select region, quantile_disc(severity, 0.5) from claims_v group by region
select region, percentile_cont(0.5) within group (order by amount) from claims_v group by region
select region, percentile_disc(0.5) within group (order by severity desc) from claims_v group by region
select region, stddev(amount) from claims_v group by region
select region, stddev_samp(amount) from claims_v group by region
select region, stddev_pop(amount) from claims_v group by region
select region, variance(amount) from claims_v group by region
select region, var_samp(amount) from claims_v group by region
select region, var_pop(amount) from claims_v group by region
select region, corr(amount, severity) from claims_v group by region
select region, covar_pop(amount, severity) from claims_v group by region
select region, covar_samp(amount, severity) from claims_v group by region
select region, regr_slope(amount, severity) from claims_v group by region
select region, regr_intercept(amount, severity) from claims_v group by region
select region, regr_r2(amount, severity) from claims_v group by region
select region, regr_count(amount, severity) from claims_v group by region
select region, string_agg(status, ',' order by claim_id) from claims_v group by region
select region, string_agg(distinct status, ',' order by status) from claims_v group by region
select region, string_agg(status order by claim_id) from claims_v group by region
select region, group_concat(status, ';' order by claim_id) from claims_v group by region
select region, listagg(status, ',' order by claim_id) from claims_v group by region
select region, list(severity order by claim_id) from claims_v group by region
select region, array_agg(severity order by claim_id desc) from claims_v group by region
select region, array_agg(distinct severity order by severity) from claims_v group by region
select region, arg_max(claim_id, amount) from claims_v group by region
select region, arg_min(claim_id, amount) from claims_v group by region
select region, arg_max(claim_id, amount, 3) from claims_v group by region
select region, max_by(claim_id, amount) from claims_v group by region
select region, min_by(claim_id, amount) from claims_v group by region
select region, first(status order by claim_id) from claims_v group by region
select region, last(status order by claim_id) from claims_v group by region
select region, any_value(tenant_id) from claims_v group by region
select region, bool_and(severity > 0) from claims_v group by region
select region, bool_or(severity > 4) from claims_v group by region
select region, product(severity::double) from claims_v group by region
select region, histogram(severity) from claims_v group by region
select region, approx_count_distinct(status) from claims_v group by region
select region, approx_quantile(amount, 0.5) from claims_v group by region
select region, entropy(severity) from claims_v group by region
select region, skewness(amount) from claims_v group by region
select region, kurtosis(amount) from claims_v group by region
select region, geomean(severity) from claims_v group by region
select region, geometric_mean(severity) from claims_v group by region
select region, mad(amount) from claims_v group by region
select region, fsum(amount::double) from claims_v group by region
select region, favg(amount::double) from claims_v group by region
select region, weighted_avg(amount, severity) from claims_v group by region
select region, wavg(amount, severity) from claims_v group by region
select region, sum(amount) filter (where severity > 2) from claims_v group by region
select region, sum(amount) filter (severity > 2) from claims_v group by region
select region, sum(amount) / nullif(count(*), 0) from claims_v group by region
select region, round(100.0 * sum(amount) filter (where status = 'open') / sum(amount), 2) from claims_v group by region
select region, min(columns('.*_id')) from claims_v group by region
select region, sum(case when status = 'open' then 1 else 0 end) from claims_v group by region
select region, max(reported_at) - min(reported_at) from claims_v group by region
select region, coalesce(sum(amount), 0)::decimal(18,2) from claims_v group by region
select region, list_sort(list(distinct status)) from claims_v group by region
select region, bool_or(claimant_name like '%*') from claims_v group by region
select region, min(claimant_email) from claims_v group by region
select region, status, grouping(region), grouping_id(region, status), count(*) from claims_v group by cube (region, status)
select region, count(*) as n from claims_v group by region having n > 3 order by n desc, region
select * from (select claim_id, amount from claims_v order by amount desc limit 5) order by claim_id
select distinct region, status from claims_v order by all
select region, sum(amount) s from claims_v group by all order by all desc nulls last
with recursive t(n) as (values (1) union all select n + 1 from t where n < 10) select sum(n) from t
with recursive t as (select 1 as n, [1] as p union select n + 1, list_concat(p, [n]) from t where n < 4) select * from t
with t as (values (1, 'a'), (2, 'b')) select * from t
with t(x, y) as (values (1, 'a'), (2, 'b')) select x, y from t
select * from (values (1, 'a'), (2, 'b')) t(x, y) join claims_v on severity = x where claim_id < 50
from claims_v
from claims_v where severity = 5
from claims_v select region, count(*) group by region
(select 1 as a) union all (select 2) order by a
select 1 as a union select 2 union all select 2 intersect select 2 except select 3
select claim_id from claims_v where severity = 1 union by name select approval_id, claim_id from approvals_v where approval_level = 2
select a.*, b.city from claims_v a left join depots_v b using (depot_id)
select count(*) from claims_v a join approvals_v b using (claim_id, tenant_id)
select count(*) from claims_v natural join approvals_v
select count(*) from claims_v a inner join (approvals_v b join depots_v d on d.depot_id > 0) on a.claim_id = b.claim_id
select count(*) from (claims_v a join approvals_v b on a.claim_id = b.claim_id)
select c.claim_id, a.* from claims_v c cross join lateral (select decision from approvals_v a where a.claim_id = c.claim_id order by approval_id limit 1) a
select c.claim_id, a.decision from claims_v c left join lateral (select decision from approvals_v a where a.claim_id = c.claim_id order by approval_id limit 1) a on true
select c.claim_id, (select count(*) from approvals_v a where a.claim_id = c.claim_id) n from claims_v c
select u.k, count(*) from claims_v, unnest(['a','b']) as u(k) group by u.k
select t.tag, i from claims_v c, unnest(c.tags) with ordinality as t(tag, i) where c.claim_id < 30
select claim_id, unnest(tags) as tag, unnest(loss) from claims_v where claim_id < 20
select * from generate_series(timestamp '2023-01-01', timestamp '2023-03-01', interval '7 days') g(t)
select * from range(date '2023-01-01', date '2023-02-01', interval 1 week) t(d) left join claims_v c on date_trunc('day', c.reported_at) = t.d
select g, count(claim_id) from generate_series(1, 5) t(g) left join claims_v on severity = g group by g order by g
pivot claims_v on status in ('open', 'closed') using count(*) group by region
pivot claims_v on status in ('open', 'closed'), severity in (1, 2) using count(*), sum(amount) as s group by region
pivot (from claims_v where severity > 2) on status in ('open' as o, 'closed' as c) using sum(amount) group by region order by region limit 3
with p as (pivot claims_v on status in ('open', 'closed') using sum(amount) group by region) select region, open + closed from p
select * from (pivot claims_v on status in ('open') using count(*) group by region) order by region
select * from claims_v pivot (sum(amount) for status in ('open', 'closed') severity in (1, 2) group by region)
select * from (select region, status, amount from claims_v) as s pivot (sum(amount) as total, avg(amount) as mean for status in ('open', 'closed')) as p order by region
unpivot (select claim_id, amount, reserve from claims_v) on amount, reserve into name k value v
unpivot (select claim_id, amount::double a, reserve::double r from claims_v) on columns(* exclude claim_id) into name k value v
select * from (select item_id, qty_on_hand, qty_reserved from inventory_v) unpivot include nulls (v for k in (qty_on_hand as 'h', qty_reserved as 'r'))
select claim_id from claims_v qualify row_number() over (partition by region order by amount desc, claim_id) = 1
select region, claim_id, sum(amount) over w from claims_v window w as (partition by region order by claim_id), v as (order by severity) qualify rank() over v = 1
select region, sum(sum(amount)) over (order by region) from claims_v group by region
select region, count(*), rank() over (order by count(*) desc, region) from claims_v group by region
select claim_id from claims_v order by amount desc, claim_id fetch first 3 rows only
select claim_id from claims_v order by claim_id limit 10 percent
select claim_id from claims_v order by claim_id limit 3 + 2 offset 1
select claim_id from claims_v order by claim_id limit (select 4)
select case when exists (select 1 from approvals_v a where a.claim_id = c.claim_id) then 'y' else 'n' end as f, count(*) from claims_v c group by f
select c.region, d.region from claims_v c, depots_v d where c.depot_id = d.depot_id and c.severity = 5
select claims_v.claim_id from claims_v where claims_v.severity = 2
select main.claims_v.claim_id from main.claims_v where main.claims_v.severity = 2
select "claims_v"."claim_id" from "main"."claims_v"
select CLAIMS_V.CLAIM_ID from Claims_V
select d.code, i.sku from depots_v d asof left join inventory_v i on d.depot_id = i.depot_id and d.capacity_pallets >= i.item_id
select count(*) from claims_v c positional join approvals_v
select count(*) from claims_v where claim_id in (select claim_id from approvals_v where decision = 'approved') or severity = 1
select count(*) from claims_v where (region, status) in (select region, 'open' from depots_v)
select count(*) from claims_v where not exists (from approvals_v a where a.claim_id = claims_v.claim_id)
select count(*) from claims_v c where amount > (select avg(amount) from claims_v where region = c.region)
select attrs, attrs['color'], map_keys(attrs) from inventory_v order by item_id
select location.lat, location['lon'], d.location.lat from depots_v d
select struct_extract(location, 'lat') + 1 from depots_v
select last_counted, current_date - last_counted from inventory_v
select date_diff('month', opened_on, date '2024-01-01') from depots_v
select status, region from claims_v where status = 'open' -- trailing
select /* a */ 1 /* b /* c */ d */
select 1;
select 'a;b' ;
with a as (select 1 x), b as (select x + 1 y from a), c as (select y from b union all select x from a) select * from c
with a as materialized (select * from claims_v), a2 as not materialized (select * from a) select count(*) from a2 x join a2 y using (claim_id)
select * from (with q as (select 1 as z) select z from q)
select (select count(*) from claims_v) as a, (select count(*) from depots_v) as b
select x.y.z from (select {'y': {'z': 1}} as x)
select t.x from (select 1 as x) as t
select col0 from (values (1, 2))
select * from (select 1, 2) t(a, b)
select count(*) c, region r from claims_v group by r order by c, r
select region from claims_v group by 1 order by count(*) desc, 1
select sum(amount) from claims_v where reported_at >= date '2023-06-01' and reported_at < date '2023-07-01'
select sum(amount) from claims_v where reported_at between '2023-06-01' and '2023-07-01'
select year(reported_at) y, month(reported_at) m, count(*) from claims_v group by y, m order by y, m
select strftime(reported_at, '%Y') || '-Q' || quarter(reported_at) as q, count(*) from claims_v group by q
select approx_count_distinct(region), count(distinct region) from claims_v
select list(struct_pack(id := claim_id, a := amount) order by claim_id)[1:3] from claims_v
select list_transform(list(amount order by claim_id), lambda x: x * 2)[1] from claims_v
select max(claim_id) filter (where status = 'open') - min(claim_id) from claims_v
select depot_id, sum(qty_on_hand - qty_reserved) free from inventory_v group by depot_id having free > 10 order by depot_id
select i.* exclude (attrs, unit_cost), i.unit_cost * 2 as dbl from inventory_v i where i.sku like 'SKU-1%'
select row(claim_id, amount) from claims_v order by claim_id limit 2
select regexp_extract(claimant_email, '@(.*)$', 1) dom, count(*) from claims_v group by dom
select array_agg(tag order by tag) from (select distinct unnest(tags) tag from claims_v)
select count(*) from claims_v as c(a, b, d)
select c.a, c.b from claims_v as c(a, b) order by 2 limit 4
select region, status, count(*) from claims_v group by region, rollup(status)
select region, first(status order by claim_id) from claims_v group by region
select distinct on (region) region, status from claims_v order by region, claim_id
select * exclude (loss, tags) from claims_v order by claim_id limit 3
select bool_and(amount > 0) and bool_or(severity = 5) from claims_v
select greatest(max(amount), 1) from claims_v
select "claim_id" as "Claim Id", amount as "größe" from claims_v order by 1 limit 2
select amount größe from claims_v order by 1 limit 2
select status || region || '-' from claims_v
select tags || tags from claims_v
select severity || status from claims_v
select date '2024-02-29' + interval 1 year, timestamp '2024-01-01 10:00:00'::date
select date '2024-01-01'::timestamp, time '10:00'::varchar, '1'::int::varchar
select (select 1) + (select 2) as three
select claim_id from claims_v where amount >= all (select amount from claims_v)
from unnest([1, 2]) as u(n) join claims_v c on c.severity = u.n select u.n, count(*) group by u.n
from (values (1, 'a')) as v(n, s), depots_v select n, count(*) group by n
select list(amount order by claim_id)[1:2], list(claim_id order by claim_id)[1] from claims_v
with recursive tree as (select claim_id, 0 as depth from claims_v where claim_id < 4 union all select c.claim_id, depth + 1 from claims_v c join tree t on c.claim_id = t.claim_id + 3 where depth < 5) select * from tree
