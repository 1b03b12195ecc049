-- What a Tocsin of schema 3 has written.
BEGIN TRANSACTION;
CREATE TABLE alerts (
    id TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    state TEXT NOT NULL,
    severity TEXT NOT NULL,
    payload TEXT NOT NULL,
    began INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "alerts" VALUES('a1',1,'firing','critical','{"id":"a1","run":"r","attempt":0,"rule":"non_finite","family":"data","severity":"critical","metric":"actor/pg_loss","source":"loss","onset_step":2,"fired_step":2,"evidence":{"value":"NaN","baseline":0.5,"score":null,"limit":null,"window":null,"detail":""},"summary":"s","meaning":"m","remedies":["stop"],"state":"firing","incident":"i1","resolved_step":null,"reason":null}',3);
CREATE TABLE days (
    run_id INTEGER NOT NULL REFERENCES runs (id),
    day INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (run_id, day)
) WITHOUT ROWID;
INSERT INTO "days" VALUES(1,19675,0);
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    position INTEGER NOT NULL,
    transition TEXT NOT NULL,
    step INTEGER NOT NULL,
    time REAL,
    subject TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "events" VALUES('a1-escalated-critical',1,5,'escalated',2,1700000000.0,'a1');
INSERT INTO "events" VALUES('a1-fired-warning',1,3,'fired',2,1700000000.0,'a1');
INSERT INTO "events" VALUES('i1-escalated-critical-1',1,5,'escalated',2,1700000000.0,'i1');
INSERT INTO "events" VALUES('i1-fired-warning-1',1,3,'fired',2,1700000000.0,'i1');
CREATE TABLE incidents (
    id TEXT PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    state TEXT NOT NULL,
    severity TEXT NOT NULL,
    payload TEXT NOT NULL,
    began INTEGER NOT NULL DEFAULT 0
);
INSERT INTO "incidents" VALUES('i1',1,'firing','critical','{"id":"i1","run":"r","attempt":0,"rule":"non_finite","title":"t","severity":"critical","onset_step":2,"first_sign":"a1","last_good_step":1,"members":["a1"],"meaning":"m","remedies":["stop"],"state":"firing","opened_step":0,"resolved_step":null}',3);
CREATE TABLE log (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    position INTEGER NOT NULL,
    key TEXT,
    step INTEGER,
    time REAL,
    entry TEXT NOT NULL
);
INSERT INTO "log" VALUES(1,1,1,NULL,NULL,NULL,'{"kind":"config","algorithm":"grpo"}');
INSERT INTO "log" VALUES(2,1,2,'k1',1,1700000001.0,'{"kind":"vector","step":1,"metrics":{"loss":0.5},"time":1700000001.0}');
INSERT INTO "log" VALUES(3,1,3,'k2',2,1700000002.0,'{"kind":"vector","step":2,"metrics":{"loss":0.5},"time":1700000002.0}');
INSERT INTO "log" VALUES(4,1,4,'k3',3,1700000003.0,'{"kind":"vector","step":3,"metrics":{"loss":0.5},"time":1700000003.0}');
INSERT INTO "log" VALUES(5,1,5,'k4',4,1700000004.0,'{"kind":"vector","step":4,"metrics":{"loss":0.5},"time":1700000004.0}');
CREATE TABLE outbox (
    receiver TEXT NOT NULL,
    incident TEXT NOT NULL,
    run_id INTEGER NOT NULL REFERENCES runs (id),
    news INTEGER NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0,
    due REAL NOT NULL,
    leased INTEGER NOT NULL DEFAULT 0,
    tries INTEGER NOT NULL DEFAULT 0,
    told TEXT,
    error TEXT,
    PRIMARY KEY (receiver, incident)
) WITHOUT ROWID;
INSERT INTO "outbox" VALUES('pager','i1',1,2,2,0.0,0,0,'["non_finite","critical","firing",1700000000.0]',NULL);
INSERT INTO "outbox" VALUES('slack','i1',1,2,0,1700000000.0,0,0,NULL,NULL);
INSERT INTO "outbox" VALUES('webhook','i1',1,2,0,1700000002.0,0,1,NULL,'HTTP 500');
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    created REAL NOT NULL,
    last_seen REAL,
    vectors INTEGER NOT NULL DEFAULT 0,
    step INTEGER,
    given TEXT NOT NULL DEFAULT '{}',
    given_at INTEGER NOT NULL DEFAULT 0,
    head INTEGER NOT NULL DEFAULT 0,
    committed INTEGER NOT NULL DEFAULT 0,
    base INTEGER NOT NULL DEFAULT 0,
    version TEXT,
    attempt INTEGER,
    view TEXT,
    error TEXT
);
INSERT INTO "runs" VALUES(1,'r',1700000000.0,1700000000.0,4,4,'{"algorithm":"grpo"}',1,5,5,0,'v1',0,'{"algorithm":"grpo","profile":"dense"}',NULL);
CREATE TABLE silences (
    id TEXT PRIMARY KEY,
    starts REAL NOT NULL,
    ends REAL NOT NULL,
    payload TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "silences" VALUES('s1',5.0,9.0,'{"id":"s1","matchers":{"run":"exp-*","rule":"*","severity":"warning","labels":{"team":"rl"}},"starts":5.0,"ends":9.0,"author":"me","comment":"why"}');
CREATE TABLE state (
    run_id INTEGER PRIMARY KEY REFERENCES runs (id),
    version TEXT NOT NULL,
    position INTEGER NOT NULL,
    snapshot TEXT NOT NULL
);
INSERT INTO "state" VALUES(1,'v1',3,'{"n":1}');
CREATE INDEX runs_with_news ON runs (id) WHERE head > committed;
CREATE INDEX runs_by_last_seen ON runs (last_seen);
CREATE UNIQUE INDEX log_by_position ON log (run_id, position);
CREATE UNIQUE INDEX log_by_key ON log (run_id, key) WHERE key IS NOT NULL;
CREATE INDEX events_by_run ON events (run_id);
CREATE INDEX alerts_by_run ON alerts (run_id);
CREATE INDEX alerts_firing ON alerts (run_id, severity) WHERE state = 'firing';
CREATE INDEX incidents_by_run ON incidents (run_id);
CREATE INDEX outbox_due ON outbox (receiver, due) WHERE news > settled;
CREATE INDEX outbox_by_run ON outbox (run_id);
COMMIT;
PRAGMA application_id = 1953457011;
PRAGMA user_version = 3;
PRAGMA journal_mode = WAL;
