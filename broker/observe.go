package broker

import (
	"context"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/disk"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
	"github.com/sandbox-broker/sandbox-broker/broker/metrics/history"
	"github.com/sandbox-broker/sandbox-broker/broker/quota"
)

// quotaMetrics are what the metrics say of quotas.
func (b *broker) quotaMetrics(most int) []metrics.Quota {
	var all []metrics.Quota
	for _, usage := range b.quotas.Usages(most) {
		q := metrics.Quota{
			Tenant: usage.Tenant, Waiting: usage.Waiting,
			Used: map[string]float64{}, Limits: map[string]float64{}, Refused: map[string]int64{},
		}
		for _, line := range usage.Lines {
			if line.Limit != quota.MaxMemoryMB && line.Limit != quota.MaxCPUs {
				q.Used[string(line.Limit)] = line.Used
			}
			if line.Max > 0 {
				q.Limits[string(line.Limit)] = line.Max
			}
		}
		for limit, n := range usage.Refused {
			q.Refused[string(limit)] = n
		}
		all = append(all, q)
	}
	return all
}

// reading is what the history takes down at each step.
func (b *broker) reading(meter *metrics.Metrics) history.Reading {
	r, totals := meter.Reading(), b.quotas.Totals()
	r.Waiting = float64(totals.Waiting)
	if totals.Priced {
		r.Cost = new(totals.Cost.Amount())
	}
	return r
}

// snapshotCounts are what the metrics say of snapshots.
func (b *broker) snapshotCounts() map[string]metrics.Snapshots {
	counts := map[string]metrics.Snapshots{}
	for label, n := range b.snapshots.CountByProvider() {
		counts[label] = metrics.Snapshots{Count: n.Snapshots, Bytes: n.Bytes}
	}
	return counts
}

func (b *broker) volumeCounts() map[string]metrics.Volumes {
	counts := map[string]metrics.Volumes{}
	for label, n := range b.volumes.CountByProvider() {
		counts[label] = metrics.Volumes{Count: n.Volumes, Bytes: n.Bytes}
	}
	return counts
}

// disks are the waits for the broker's own disk, by what is written.
func (b *broker) disks() map[string]disk.State {
	return map[string]disk.State{"audit": b.audit.Disk().State(), "state": b.store.Disk().State()}
}

// auditState is what the metrics say of the audit log.
func (b *broker) auditState() metrics.Audit {
	s := b.audit.State()
	return metrics.Audit{Writable: s.Writable, Lines: s.Lines, Refused: s.Refused, Late: s.Late, Behind: b.sinks.Behind()}
}

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
		again, err := b.state.Recreate(b.previewKey, b.snapshotSecret)
		if again {
			b.logger.Error("the state directory, or a part of it, was removed while the broker ran; it was made again", "directory", b.state.Path())
		}
		if err == nil {
			err = b.launcher.KeepInPlace()
		}
		if err == nil && b.backups != nil {
			err = b.backups.Recreate()
		}
		if err != nil && !told {
			b.logger.Error("a directory of the broker was removed, and cannot be made again", "error", err)
		}
		told = err != nil
	}
}
