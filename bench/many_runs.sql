-- 100,000 ended runs of the user `bench` in two projects, each with 4 arguments and 6 metrics; read by bench/runs.py.
INSERT INTO project (user_id, name, "default", readme, board, goals, tags)
SELECT id, 'vision', false, '', '[]', '{}', '{}' FROM "user" WHERE username = 'bench';
INSERT INTO job (
    user_id, tenant_id, name, runtime, entry, gpu, cpu, ram, workers, datasets, args, env, retries, state, progress,
    reason, reserved, attempt, run_name, run_started, values_kept, metrics_notice, nonce, created, started, ended,
    project_id, tags, "group"
)
SELECT owner.id, owner.tenant_id, translate('run' || lpad(n::text, 6, '0'), '0123456789', 'abcdefghij'), 'python',
    (ARRAY ['train.py', 'models/resnet.py', 'models/vit.py'])[1 + n % 3], 0, 1, 512, 1, '["images"]',
    jsonb_build_array('--lr', power(10, -1 - n % 5)::text, '--batch', (8 << (n % 6))::text, '--optimizer',
        (ARRAY ['adam', 'sgd', 'lion'])[1 + n % 3], '--seed', n::text), '{}', 0,
    CASE WHEN n % 10 < 8 THEN 'finished' ELSE 'error' END, 100,
    CASE n % 10 WHEN 9 THEN 'cancelled' WHEN 8 THEN 'exit code 1' ELSE '' END, false, 1, '', false, 600, '', md5(n::text),
    now() - make_interval(secs => 200000 - n), now() - make_interval(secs => 199990 - n + n % 7),
    now() - make_interval(secs => 199000 - n + n % 700),
    (SELECT id FROM project WHERE user_id = owner.id AND "default" = (n % 4 > 0) LIMIT 1),
    CASE WHEN n % 50 = 0 THEN '{"baseline": "", "team": "vision"}' ELSE '{}' END::jsonb,
    CASE WHEN n % 20 = 0 THEN 'sweep ' || n / 1000 ELSE '' END
FROM "user" AS owner, generate_series(1, 100000) AS n WHERE owner.username = 'bench' ORDER BY n;
INSERT INTO run_param (job_id, user_id, name, text, number, source)
SELECT job.id, user_id, substr(args ->> (2 * k - 2), 3), args ->> (2 * k - 1),
    CASE WHEN k <> 3 THEN (args ->> (2 * k - 1))::float END, 'argument'
FROM job, generate_series(1, 4) AS k WHERE jsonb_array_length(args) = 8;
INSERT INTO run_metric (job_id, user_id, name, last, min, max, count, step)
SELECT id, user_id, metric, v, v * 0.9, v * 1.1, 100, 100
FROM (
    SELECT job.id, user_id, metric, random() AS v FROM job,
        unnest(ARRAY ['loss', 'accuracy', 'val/loss', 'val/accuracy', 'lr', 'throughput']) AS metric
) AS made;
