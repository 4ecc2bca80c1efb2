BEGIN TRANSACTION;
CREATE TABLE activations (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	model TEXT NOT NULL, 
	checksum TEXT NOT NULL, 
	events_until BIGINT NOT NULL, 
	cutoff BLOB, 
	forgotten_until BIGINT NOT NULL, 
	activated FLOAT NOT NULL, 
	note TEXT NOT NULL
);
INSERT INTO "activations" VALUES(1,'shop','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,NULL,0,1760000000.0,'given at the start');
INSERT INTO "activations" VALUES(2,'shop-2','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',4,X'016D6F766564207468726573686F6C64',1,1760000000.0,'refit');
CREATE TABLE counters (
	minute BIGINT NOT NULL, 
	worker TEXT NOT NULL, 
	name TEXT NOT NULL, 
	value FLOAT NOT NULL, 
	PRIMARY KEY (minute, worker, name)
);
INSERT INTO "counters" VALUES(29333333,'w','lists',5.0);
CREATE TABLE cutoffs (
	cutoff_id TEXT NOT NULL, 
	content BLOB NOT NULL, 
	created FLOAT NOT NULL, 
	PRIMARY KEY (cutoff_id)
);
INSERT INTO "cutoffs" VALUES('ffffffffffffffffffffffff',X'006375746F6666206F6620612072657175657374',1760000000.0);
CREATE TABLE events (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	event_id TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	item_id TEXT NOT NULL, 
	time BIGINT NOT NULL, 
	weight FLOAT, 
	list_id TEXT, 
	received FLOAT NOT NULL, 
	UNIQUE (event_id)
);
INSERT INTO "events" VALUES(1,'e1','ann','i1',1758272000000000,NULL,NULL,1758272000.0);
INSERT INTO "events" VALUES(2,'e2','bob','i2',1758272000000000,NULL,NULL,1758272000.0);
INSERT INTO "events" VALUES(4,'e4','eve','i4',1759827200000000,NULL,NULL,1759827200.0);
INSERT INTO "events" VALUES(5,'e5','ann','i1',1759827200000000,-1.0,NULL,1759827200.0);
INSERT INTO "events" VALUES(6,'e6','bob','i5',1759913600000000,2.0,NULL,1759913600.0);
CREATE TABLE experiments (
	name TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	started FLOAT NOT NULL, 
	ended FLOAT, 
	PRIMARY KEY (name)
);
INSERT INTO "experiments" VALUES('winter','{"arms": [{"name": "ten", "share": 0.5, "model": null, "options": {"N": 10, "explore": 0.1}}, {"name": "new", "share": 0.5, "model": "shop-2", "options": {}}], "metric": "hits", "window_days": 7.0, "gain": 1.0, "cost": 0.0, "contact_cost": 0.0, "guardrails": {}, "smallest_effect": null, "confidence": 0.95}',1757408000.0,1758185600.0);
INSERT INTO "experiments" VALUES('spring','{"arms": [{"name": "ten", "share": 0.5, "model": null, "options": {"N": 10, "explore": 0.1}}, {"name": "new", "share": 0.5, "model": "shop-2", "options": {}}], "metric": "hits", "window_days": 7.0, "gain": 1.0, "cost": 0.0, "contact_cost": 0.0, "guardrails": {}, "smallest_effect": null, "confidence": 0.95}',1759740800.0,NULL);
CREATE TABLE exposures (
	experiment TEXT NOT NULL, 
	user_id TEXT NOT NULL, 
	arm TEXT NOT NULL, 
	first FLOAT NOT NULL, 
	n_before BIGINT NOT NULL, 
	outcome TEXT, 
	complete FLOAT, 
	PRIMARY KEY (experiment, user_id)
);
INSERT INTO "exposures" VALUES('winter','ann','ten',1757494400.0,4,'{"hits": 1.0, "hits_per_item": 0.5, "value": 1.0, "f1": 0.5, "empty": 0.0, "shown": 2.0}',1758099260.0);
INSERT INTO "exposures" VALUES('winter','bob','new',1757494400.0,1,'{"hits": 0.0, "hits_per_item": 0.0, "value": 0.0, "f1": 0.5, "empty": 0.0, "shown": 2.0}',1758099260.0);
INSERT INTO "exposures" VALUES('spring','ann','ten',1759827200.0,5,NULL,NULL);
INSERT INTO "exposures" VALUES('spring','bob','new',1759827200.0,2,NULL,NULL);
CREATE TABLE forgotten (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	user_id TEXT NOT NULL, 
	events_until BIGINT NOT NULL, 
	forgotten FLOAT NOT NULL
);
INSERT INTO "forgotten" VALUES(1,'eve',3,1760000000.0);
CREATE TABLE lists (
	list_id TEXT NOT NULL, 
	user_id TEXT, 
	model TEXT NOT NULL, 
	cutoff TEXT, 
	made FLOAT NOT NULL, 
	items TEXT NOT NULL, 
	probabilities TEXT, 
	propensities TEXT, 
	reason TEXT, 
	share FLOAT NOT NULL, 
	used BOOLEAN NOT NULL, 
	arm TEXT, 
	n_before BIGINT, 
	PRIMARY KEY (list_id)
);
INSERT INTO "lists" VALUES('l1','ann','shop','N',1757494400.0,'["i5", "i6"]',NULL,NULL,'top_n',1.0,1,'winter/ten',4);
INSERT INTO "lists" VALUES('l2','bob','shop','N',1757494400.0,'["i5", "i6"]',NULL,NULL,'top_n',1.0,0,'winter/new',1);
INSERT INTO "lists" VALUES('l3','ann','shop','N',1759827200.0,'["i5", "i6"]',NULL,NULL,'top_n',1.0,0,'spring/ten',5);
INSERT INTO "lists" VALUES('l4','bob','shop','N',1759827200.0,'["i5", "i6"]',NULL,NULL,'top_n',1.0,0,'spring/new',2);
INSERT INTO "lists" VALUES('l5',NULL,'shop','N',1759913600.0,'["i5", "i6"]',NULL,NULL,'top_n',1.0,0,'spring/new',NULL);
CREATE TABLE model_parts (
	checksum TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	PRIMARY KEY (checksum, number)
);
INSERT INTO "model_parts" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',0,X'66697273742070617274206F662061206D6F64656C2066696C652C20');
INSERT INTO "model_parts" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,X'7365636F6E642070617274');
CREATE TABLE models (
	checksum TEXT NOT NULL, 
	name TEXT NOT NULL, 
	stored FLOAT NOT NULL, 
	PRIMARY KEY (checksum)
);
INSERT INTO "models" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','shop',1760000000.0);
CREATE TABLE settings (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "settings" VALUES('feedback','{"seq": 3, "subject": ["shop", null], "monitors": {}}');
INSERT INTO "settings" VALUES('feedback turn','00000000000000000100');
CREATE INDEX events_user ON events (user_id, time);
CREATE INDEX lists_user ON lists (user_id, made);
CREATE INDEX lists_made ON lists (made);
CREATE INDEX exposures_first ON exposures (experiment, first);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',6);
INSERT INTO "sqlite_sequence" VALUES('activations',2);
INSERT INTO "sqlite_sequence" VALUES('forgotten',1);
COMMIT;
