package config

import (
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// The broker's own settings, declared like a provider's. A description is
// shown with a mistake, so it says what to write and in which unit.

func rootSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "listen", Type: sdk.TypeString, Default: "127.0.0.1:9385",
			Description: `The REST API's address, "host:port", such as "127.0.0.1:9385".`,
		},
		{
			Name: "state", Type: sdk.TypeString, Default: "./data", Min: sdk.Bound(1),
			Description: "The directory for the broker's state, relative to this file's; or the URL of a PostgreSQL database for it, `postgres://USER@HOST/NAME?sslmode=verify-full`. A URL with a password comes from `env()`, `file()` or `sealed()`.",
		},
		{
			Name: "data", Type: sdk.TypeString, Default: "./data", Min: sdk.Bound(1),
			Description: "Where `state` is a database: the directory for what stays on this machine, relative to this file's.",
		},
		{
			Name: "plugin_dir", Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "The directory of the provider plugins, relative to this file's.",
		},
		{
			Name: "include", Type: sdk.TypeList,
			Description: `Further files, such as "conf.d/*.hcl", relative to this file's directory.`,
		},
		{
			Name: keyFileSetting, Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "The file with the keys for sealed(), relative to this file's directory. `sandbox-broker keygen` makes it.",
		},
	}
}

func logSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "level", Type: sdk.TypeString, Default: "info",
			Options:     []string{"trace", "debug", "info", "warn", "error"},
			Description: "The least severe messages to log.",
		},
		{
			Name: "format", Type: sdk.TypeString, Default: "text", Options: []string{"text", "json"},
			Description: "How the log is written.",
		},
	}
}

func metricsSchema() sdk.Schema {
	return sdk.Schema{{
		Name: "listen", Type: sdk.TypeString, Default: "127.0.0.1:9386",
		Description: `The address of /metrics, "host:port". Whoever reaches it can read it, without a token.`,
	}}
}

// maxLifetime is the longest life of an instance that can be set.
const maxLifetime = 30 * 24 * time.Hour

// maxSnapshotLife is the longest life of a snapshot that can be set.
const maxSnapshotLife = 365 * 24 * time.Hour

func limitsSchema() sdk.Schema {
	return sdk.Schema{
		size("request_body", 4<<20, 16<<20, "Bytes in the body of a request."),
		size("output", 1<<20, 8<<20, "Bytes kept of stdout and of stderr, each."),
		{
			Name: "artifact_count", Type: sdk.TypeInteger, Default: int64(20), Min: sdk.Bound(1), Max: sdk.Bound(sdk.MaxArtifactCount),
			Description: "How many artifacts an execution returns, and how many files it may ask for.",
		},
		size("artifact_bytes", 4<<20, sdk.MaxArtifactBytes, "Bytes of one artifact."),
		size("artifact_total", 16<<20, 64<<20, "Bytes of all artifacts of an execution together."),
		span("default_timeout", 30*time.Second, 100*time.Millisecond, 24*time.Hour, "The time limit of an execution that names none."),
		span("max_timeout", 10*time.Minute, 100*time.Millisecond, 24*time.Hour, "The longest time limit that an execution may name."),
		span("create_timeout", time.Minute, time.Second, time.Hour, "How long a new instance may take on one provider, waiting until that is ready included. What a request asks to wait for its turn comes on top."),
		span("default_ttl", 5*time.Minute, time.Second, maxLifetime, "How long an instance lives after its creation and after each use, if its creator says nothing else."),
		span("max_lifetime", 24*time.Hour, time.Second, maxLifetime, "How long an instance may live in all, however it is used and renewed."),
		span("max_idle", 24*time.Hour, time.Second, maxLifetime, "How long an instance may be unused, whatever is left of its time. Its creator may ask for less."),
		span("snapshot_ttl", 24*time.Hour, time.Second, maxSnapshotLife, "How long a snapshot is kept that was made without a ttl."),
		span("max_snapshot_ttl", 7*24*time.Hour, time.Second, maxSnapshotLife, "The longest ttl that a snapshot may be made with."),
		span("max_wait", time.Minute, 0, time.Hour, "How long a request may ask to wait for its turn, by wait_ms."),
		{
			Name: "max_waiting", Type: sdk.TypeInteger, Default: int64(1000), Min: sdk.Bound(0), Max: sdk.Bound(100_000),
			Description: "How many requests of each tenant may wait for their turn at a time.",
		},
		size("execution_log_bytes", 32<<20, 1<<30, "Bytes that are remembered of what one execution has told, for who reads it again. The oldest go first."),
		size("execution_logs_bytes", 256<<20, 64<<30, "The same of all executions together. The tenant that takes the most loses first."),
		span("execution_log_time", 10*time.Minute, time.Second, 24*time.Hour, "How long an execution is remembered after its end."),
		span("disk_timeout", 30*time.Second, 100*time.Millisecond, time.Hour, "How long a request may wait until the broker's own disk has a line of the audit log, or of the state; its own deadline may be earlier. It is refused then."),
		span("shutdown_timeout", 30*time.Second, 0, time.Hour, "How long a stop lets running executions finish."),
	}
}

func size(name string, value int64, most float64, description string) sdk.Field {
	return sdk.Field{
		Name: name, Type: sdk.TypeInteger, Default: value, Description: description,
		Min: sdk.Bound(1024), Max: sdk.Bound(most),
	}
}

func span(name string, value, least, most time.Duration, description string) sdk.Field {
	return sdk.Field{
		Name: name, Type: sdk.TypeDuration, Default: value, Description: description,
		Min: sdk.Bound(least.Seconds()), Max: sdk.Bound(most.Seconds()),
	}
}

func tlsSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "cert_file", Type: sdk.TypeString, Required: true, Min: sdk.Bound(1),
			Description: "The file with the certificate and those of its chain, in PEM, relative to this file's directory.",
		},
		{
			Name: keyFileSetting, Type: sdk.TypeString, Required: true, Min: sdk.Bound(1),
			Description: "The file with its private key, in PEM, relative to this file's directory. Nobody but its owner may have access (chmod 600).",
		},
		{
			Name: "client_ca_file", Type: sdk.TypeString, Min: sdk.Bound(1),
			Description: "A file of certificates, in PEM: clients must show one that one of these has signed. Without it they need none.",
		},
	}
}

func activeSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "active", Type: sdk.TypeString, Required: true,
			Description: "The label of the provider that serves a request naming none.",
		},
		{
			Name: "fallback", Type: sdk.TypeList,
			Description: "The labels of those that take over from it, in this order.",
		},
		{
			Name: "policy", Type: sdk.TypeString, Default: "ordered", Options: []string{"ordered", "cheapest", "fastest"},
			Description: "Which of these and the active one is asked first: `ordered` as they stand here, `cheapest` by `cost_per_second`, `fastest` by how long creations took of late.",
		},
		{
			Name: "on_stop", Type: sdk.TypeString, Default: OnStopDestroy, Options: []string{OnStopDestroy, OnStopKeep},
			Description: "What becomes of instances in clouds when the broker is stopped in order: `destroy` ends them, `keep` leaves them to the next start, as a crash does. Those of providers on this machine end in any case.",
		},
		span("start_grace", 30*time.Second, 0, 10*time.Minute,
			"How long after the start of the broker requests wait for the provider that is asked first, if it is not ready yet, before they go to the next. 0s for no longer than later on."),
		span("spill_after", 0, 0, 10*time.Minute,
			"How long a request waits for room at a provider that is full before it goes to the next. 0s for not at all."),
		span("unclear_timeout", 5*time.Second, 0, 75*time.Second,
			"How long a request waits until it is known whether a creation that failed has made an instance, before it goes to the next provider. What is found later is destroyed."),
	}
}

// costSetting is the broker's, and the plugin's too if it has one of that name.
const costSetting = "cost_per_second"

// pluginSchema holds what the broker itself takes from a provider block; the
// names are reserved in the schema of every plugin, but for costSetting.
func pluginSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "plugin", Type: sdk.TypeString, Pattern: `[A-Za-z0-9][A-Za-z0-9._-]{0,62}`,
			Description: "The name of an executable in plugin_dir; the block's label unless given.",
		},
		{
			Name: "sha256", Type: sdk.TypeString, Pattern: hexSum,
			Description: "The executable's SHA-256 sum, 64 hexadecimal digits, as sha256sum prints it.",
		},
		{
			Name: "env", Type: sdk.TypeList,
			Description: "Names of environment variables of the broker that the plugin gets too.",
		},
		{
			Name: costSetting, Type: sdk.TypeNumber, Default: 0.0, Min: sdk.Bound(0), Max: sdk.Bound(1000),
			Description: "What a second of an instance's life costs, in whatever currency the quotas of money are in.",
		},
	}
}

func tenantSchema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "token_sha256", Type: sdk.TypeList, Required: true, Min: sdk.Bound(1),
			Description: "The SHA-256 sums of this tenant's tokens, 64 hexadecimal digits each. `sandbox-broker token` makes a token and its sum.",
		},
		{
			Name: "providers", Type: sdk.TypeList, Min: sdk.Bound(1),
			Description: "The labels of the providers that this tenant may use; leave it out to allow all.",
		},
		{
			Name: "one_shot", Type: sdk.TypeString, Default: oneShotTenant, Options: []string{oneShotFresh, oneShotTenant},
			Description: "What an execution in no instance of its own gets: fresh, always a sandbox that nobody had before; tenant, also one that an earlier execution of this tenant has left, where the provider's own one_shot says so too.",
		},
	}
}

func adminSchema() sdk.Schema {
	return sdk.Schema{{
		Name: "token_sha256", Type: sdk.TypeList, Required: true, Min: sdk.Bound(1),
		Description: "The SHA-256 sums of the administrators' tokens, 64 hexadecimal digits each. `sandbox-broker token` makes a token and its sum.",
	}}
}

const hexSum = `[0-9A-Fa-f]{64}`

// ownSchemas are all schemas outside of provider blocks.
func ownSchemas() []sdk.Schema {
	own := []sdk.Schema{rootSchema(), logSchema(), metricsSchema(), tlsSchema(), peersSchema(), limitsSchema(), connectionsSchema(), previewsSchema(), activeSchema(), adminSchema(), auditSchema(), tenantSchema(), templateSchema(), quotaSchema(), webhooksSchema(), networkSchema(), allowSchema(), secretSchema()}
	return append(own, frontDoorSchemas()...)
}
