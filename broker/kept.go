package broker

import (
	"encoding/json"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/snapshot"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/broker/volume"
)

// keptCounter says what a record of a snapshot or a volume counts as, where the quotas hold on
// several brokers together. A record that cannot be read counts for nothing.
func keptCounter(limits func(tenant string) quota.Limits) func(store.Bucket, []byte) *postgres.Kept {
	return func(bucket store.Bucket, value []byte) *postgres.Kept {
		switch bucket {
		case store.Snapshots:
			var r snapshot.Record
			if json.Unmarshal(value, &r) != nil {
				return nil
			}
			l, kind := limits(r.Tenant), "snapshot"
			if r.Transient { // they count by themselves
				kind = "transient"
			}
			return &postgres.Kept{Tenant: r.Tenant, Kind: kind, Most: l.Snapshots, MostBytes: l.SnapshotBytes, Bytes: r.Bytes}
		case store.Volumes:
			var r volume.Record
			if json.Unmarshal(value, &r) != nil || !r.Counts() {
				return nil
			}
			l := limits(r.Tenant)
			return &postgres.Kept{Tenant: r.Tenant, Kind: "volume", Most: l.Volumes, MostBytes: l.VolumeBytes, Bytes: r.Size}
		default:
			return nil
		}
	}
}
