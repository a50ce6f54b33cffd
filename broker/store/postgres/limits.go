package postgres

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
)

// Kept is what a record counts as against the quotas of what a tenant keeps.
type Kept struct {
	Tenant string
	// Kind of which there may be so many (Most), with so many bytes together with all others of
	// the bucket (MostBytes); 0 for any.
	Kind            string
	Most, MostBytes int64
	Bytes           int64
}

// LimitInstances has a function say how many instances a tenant may have on all brokers
// together; 0 for any number. It must not wait for anything.
func (s *Store) LimitInstances(limit func(tenant string) int64) { s.limit.Store(&limit) }

// LimitKept has a function say what a record of Snapshots or Volumes counts as; nil for nothing.
// It must not wait for anything. The records that are there are counted first: an earlier version
// has written them, or they came from a file.
func (s *Store) LimitKept(ctx context.Context, count func(bucket store.Bucket, value []byte) *Kept) error {
	s.counts.Store(&count)
	rows, err := s.own.Query(ctx, `SELECT bucket, key, value FROM sandbox_record WHERE broker = $1 AND bucket IN ('snapshots', 'volumes')`, s.lease.broker)
	if err != nil {
		return unavailable(err)
	}
	var there columns
	var bucket string
	var key []byte
	var value *string
	if _, err := pgx.ForEachRow(rows, []any{&bucket, &key, &value}, func() error {
		there.buckets, there.keys, there.values = append(there.buckets, bucket), append(there.keys, key), append(there.values, value)
		return nil
	}); err != nil {
		return unavailable(err)
	}
	l := s.limitsOf(there)
	batch := &pgx.Batch{}
	s.fence(batch)
	batch.Queue(`UPDATE sandbox_record r SET tenant = put.tenant, kind = put.kind, bytes = put.bytes, most = NULL, most_bytes = NULL
		FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bigint[]) AS put (bucket, key, value, tenant, kind, bytes)
		WHERE r.broker = $1 AND r.bucket = put.bucket AND r.key = put.key AND r.value = put.value`,
		s.lease.broker, there.buckets, there.keys, there.values, l.tenants, l.kinds, l.bytes)
	if err := s.own.SendBatch(ctx, batch).Close(); err != nil {
		return unavailable(err)
	}
	return nil
}

// limits are columns of records with what the database holds them to.
type limits struct {
	most, bytes, mostBytes []*int64
	tenants, kinds         []*string
}

// limitsOf says what records are held to. That of an instance says how many its tenant may have.
func (s *Store) limitsOf(put columns) limits {
	n := len(put.buckets)
	l := limits{make([]*int64, n), make([]*int64, n), make([]*int64, n), make([]*string, n), make([]*string, n)}
	limit, count := s.limit.Load(), s.counts.Load()
	for n, bucket := range put.buckets {
		switch bucket := store.Bucket(bucket); bucket {
		case store.Instances:
			if limit != nil {
				l.most[n] = positive((*limit)(tenantOf(string(put.keys[n]))))
			}
		case store.Snapshots, store.Volumes:
			if count == nil || put.values[n] == nil {
				continue
			}
			if k := (*count)(bucket, []byte(*put.values[n])); k != nil {
				l.tenants[n], l.kinds[n], l.bytes[n] = &k.Tenant, &k.Kind, &k.Bytes
				l.most[n], l.mostBytes[n] = positive(k.Most), positive(k.MostBytes)
			}
		}
	}
	return l
}

func positive(n int64) *int64 {
	if n <= 0 {
		return nil
	}
	return &n
}

// tenantOf is the tenant of an instance's key.
func tenantOf(key string) string {
	tenant, _, _ := strings.Cut(key, ":")
	return tenant
}

// locksOf are the numbers that stand for the tenants whose instances are among the slots, and
// for those who keep something, in order: two tenants with the same number wait for each other
// without need.
func locksOf(slots []slot, keeping []*string) []int64 {
	var locks []int64
	for _, at := range slots {
		if at.bucket == store.Instances {
			locks = append(locks, lockOf(tenantOf(at.key)))
		}
	}
	for _, tenant := range keeping {
		if tenant != nil {
			locks = append(locks, lockOf("kept:"+*tenant))
		}
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// lockOf is the number that stands for a name.
func lockOf(name string) int64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name)) // it never fails
	return int64(sum.Sum64())
}
