package broker

import (
	"context"
	"time"
)

// recreateInterval is how often the broker looks whether its directories are still there.
const recreateInterval = 2 * time.Second

// recreateDirs makes again what somebody removes while the broker runs. The state file
// looks after itself (package store), the audit log too.
func (b *broker) recreateDirs(ctx context.Context) {
	look := time.NewTicker(recreateInterval)
	defer look.Stop()
	told := false
	for {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		again, err := b.state.Recreate(b.previewKey)
		if again {
			b.logger.Error("the state directory, or a part of it, was removed while the broker ran; it was made again", "directory", b.state.Path())
		}
		if err == nil {
			err = b.launcher.KeepInPlace()
		}
		if err == nil {
			err = b.backups.Recreate()
		}
		if err != nil && !told {
			b.logger.Error("a directory of the broker was removed, and cannot be made again", "error", err)
		}
		told = err != nil
	}
}
