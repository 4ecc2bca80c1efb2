CREATE TABLE public.activations (
    number bigint NOT NULL,
    model text NOT NULL,
    checksum text NOT NULL,
    events_until bigint NOT NULL,
    cutoff bytea,
    forgotten_until bigint NOT NULL,
    activated double precision NOT NULL,
    note text NOT NULL
);
CREATE SEQUENCE public.activations_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.activations_number_seq OWNED BY public.activations.number;
CREATE TABLE public.counters (
    minute bigint NOT NULL,
    worker text NOT NULL,
    name text NOT NULL,
    value double precision NOT NULL
);
CREATE TABLE public.cutoffs (
    cutoff_id text NOT NULL,
    content bytea NOT NULL,
    created double precision NOT NULL
);
CREATE TABLE public.events (
    seq bigint NOT NULL,
    event_id text NOT NULL,
    user_id text NOT NULL,
    item_id text NOT NULL,
    "time" bigint NOT NULL,
    weight double precision,
    list_id text,
    received double precision NOT NULL
);
CREATE SEQUENCE public.events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.events_seq_seq OWNED BY public.events.seq;
CREATE TABLE public.experiments (
    name text NOT NULL,
    definition text NOT NULL,
    started double precision NOT NULL,
    ended double precision
);
CREATE TABLE public.exposures (
    experiment text NOT NULL,
    user_id text NOT NULL,
    arm text NOT NULL,
    first double precision NOT NULL,
    n_before bigint NOT NULL,
    outcome text,
    complete double precision
);
CREATE TABLE public.forgotten (
    number bigint NOT NULL,
    user_id text NOT NULL,
    events_until bigint NOT NULL,
    forgotten double precision NOT NULL
);
CREATE SEQUENCE public.forgotten_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.forgotten_number_seq OWNED BY public.forgotten.number;
CREATE TABLE public.lists (
    list_id text NOT NULL,
    user_id text,
    model text NOT NULL,
    cutoff text,
    made double precision NOT NULL,
    items text NOT NULL,
    probabilities text,
    propensities text,
    reason text,
    share double precision NOT NULL,
    used boolean NOT NULL,
    arm text,
    n_before bigint
);
CREATE TABLE public.model_parts (
    checksum text NOT NULL,
    number integer NOT NULL,
    content bytea NOT NULL
);
CREATE TABLE public.models (
    checksum text NOT NULL,
    name text NOT NULL,
    stored double precision NOT NULL
);
CREATE TABLE public.settings (
    name text NOT NULL,
    value text NOT NULL
);
ALTER TABLE ONLY public.activations ALTER COLUMN number SET DEFAULT nextval('public.activations_number_seq'::regclass);
ALTER TABLE ONLY public.events ALTER COLUMN seq SET DEFAULT nextval('public.events_seq_seq'::regclass);
ALTER TABLE ONLY public.forgotten ALTER COLUMN number SET DEFAULT nextval('public.forgotten_number_seq'::regclass);
INSERT INTO public.activations VALUES (1, 'shop', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 0, NULL, 0, 1760000000, 'given at the start');
INSERT INTO public.activations VALUES (2, 'shop-2', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 4, '\x016d6f766564207468726573686f6c64', 1, 1760000000, 'refit');
INSERT INTO public.counters VALUES (29333333, 'w', 'lists', 5);
INSERT INTO public.cutoffs VALUES ('ffffffffffffffffffffffff', '\x006375746f6666206f6620612072657175657374', 1760000000);
INSERT INTO public.events VALUES (1, 'e1', 'ann', 'i1', 1758272000000000, NULL, NULL, 1758272000);
INSERT INTO public.events VALUES (2, 'e2', 'bob', 'i2', 1758272000000000, NULL, NULL, 1758272000);
INSERT INTO public.events VALUES (4, 'e4', 'eve', 'i4', 1759827200000000, NULL, NULL, 1759827200);
INSERT INTO public.events VALUES (5, 'e5', 'ann', 'i1', 1759827200000000, -1, NULL, 1759827200);
INSERT INTO public.events VALUES (6, 'e6', 'bob', 'i5', 1759913600000000, 2, NULL, 1759913600);
INSERT INTO public.experiments VALUES ('winter', '{"arms": [{"name": "ten", "share": 0.5, "model": null, "options": {"N": 10, "explore": 0.1}}, {"name": "new", "share": 0.5, "model": "shop-2", "options": {}}], "metric": "hits", "window_days": 7.0, "gain": 1.0, "cost": 0.0, "contact_cost": 0.0, "guardrails": {}, "smallest_effect": null, "confidence": 0.95}', 1757408000, 1758185600);
INSERT INTO public.experiments VALUES ('spring', '{"arms": [{"name": "ten", "share": 0.5, "model": null, "options": {"N": 10, "explore": 0.1}}, {"name": "new", "share": 0.5, "model": "shop-2", "options": {}}], "metric": "hits", "window_days": 7.0, "gain": 1.0, "cost": 0.0, "contact_cost": 0.0, "guardrails": {}, "smallest_effect": null, "confidence": 0.95}', 1759740800, NULL);
INSERT INTO public.exposures VALUES ('winter', 'ann', 'ten', 1757494400, 4, '{"hits": 1.0, "hits_per_item": 0.5, "value": 1.0, "f1": 0.5, "empty": 0.0, "shown": 2.0}', 1758099260);
INSERT INTO public.exposures VALUES ('winter', 'bob', 'new', 1757494400, 1, '{"hits": 0.0, "hits_per_item": 0.0, "value": 0.0, "f1": 0.5, "empty": 0.0, "shown": 2.0}', 1758099260);
INSERT INTO public.exposures VALUES ('spring', 'ann', 'ten', 1759827200, 5, NULL, NULL);
INSERT INTO public.exposures VALUES ('spring', 'bob', 'new', 1759827200, 2, NULL, NULL);
INSERT INTO public.forgotten VALUES (1, 'eve', 3, 1760000000);
INSERT INTO public.lists VALUES ('l2', 'bob', 'shop', 'N', 1757494400, '["i5", "i6"]', NULL, NULL, 'top_n', 1, false, 'winter/new', 1);
INSERT INTO public.lists VALUES ('l3', 'ann', 'shop', 'N', 1759827200, '["i5", "i6"]', NULL, NULL, 'top_n', 1, false, 'spring/ten', 5);
INSERT INTO public.lists VALUES ('l4', 'bob', 'shop', 'N', 1759827200, '["i5", "i6"]', NULL, NULL, 'top_n', 1, false, 'spring/new', 2);
INSERT INTO public.lists VALUES ('l5', NULL, 'shop', 'N', 1759913600, '["i5", "i6"]', NULL, NULL, 'top_n', 1, false, 'spring/new', NULL);
INSERT INTO public.lists VALUES ('l1', 'ann', 'shop', 'N', 1757494400, '["i5", "i6"]', NULL, NULL, 'top_n', 1, true, 'winter/ten', 4);
INSERT INTO public.model_parts VALUES ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 0, '\x66697273742070617274206f662061206d6f64656c2066696c652c20');
INSERT INTO public.model_parts VALUES ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1, '\x7365636f6e642070617274');
INSERT INTO public.models VALUES ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'shop', 1760000000);
INSERT INTO public.settings VALUES ('feedback', '{"seq": 3, "subject": ["shop", null], "monitors": {}}');
INSERT INTO public.settings VALUES ('feedback turn', '00000000000000000100');
SELECT pg_catalog.setval('public.activations_number_seq', 2, true);
SELECT pg_catalog.setval('public.events_seq_seq', 6, true);
SELECT pg_catalog.setval('public.forgotten_number_seq', 1, true);
ALTER TABLE ONLY public.activations
    ADD CONSTRAINT activations_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.counters
    ADD CONSTRAINT counters_pkey PRIMARY KEY (minute, worker, name);
ALTER TABLE ONLY public.cutoffs
    ADD CONSTRAINT cutoffs_pkey PRIMARY KEY (cutoff_id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_event_id_key UNIQUE (event_id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.experiments
    ADD CONSTRAINT experiments_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.exposures
    ADD CONSTRAINT exposures_pkey PRIMARY KEY (experiment, user_id);
ALTER TABLE ONLY public.forgotten
    ADD CONSTRAINT forgotten_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.lists
    ADD CONSTRAINT lists_pkey PRIMARY KEY (list_id);
ALTER TABLE ONLY public.model_parts
    ADD CONSTRAINT model_parts_pkey PRIMARY KEY (checksum, number);
ALTER TABLE ONLY public.models
    ADD CONSTRAINT models_pkey PRIMARY KEY (checksum);
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);
CREATE INDEX events_user ON public.events USING btree (user_id, "time");
CREATE INDEX exposures_first ON public.exposures USING btree (experiment, first);
CREATE INDEX lists_made ON public.lists USING btree (made);
CREATE INDEX lists_user ON public.lists USING btree (user_id, made);
