package sdk

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/metadata"
)

// MetadataLogLevel is the name under which the broker sends its log level with the
// calls that are no streams, health probes among them: trace, debug, info, warn,
// error or off. Serve's logger follows it, so that a plugin that runs need not be
// restarted to say more.
const MetadataLogLevel = "sandbox-broker-log-level"

// levelFollower sets the level of a logger whenever the broker has another one. A
// level that the provider chose by itself meanwhile stays until then.
type levelFollower struct {
	logger hclog.Logger

	mu   sync.Mutex
	last string
}

func (f *levelFollower) follow(ctx context.Context) {
	texts := metadata.ValueFromIncomingContext(ctx, MetadataLogLevel)
	if len(texts) != 1 {
		return
	}
	level := hclog.LevelFromString(texts[0])
	f.mu.Lock()
	defer f.mu.Unlock()
	if level == hclog.NoLevel || texts[0] == f.last {
		return
	}
	f.last = texts[0]
	f.logger.SetLevel(level)
}
