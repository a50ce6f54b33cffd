package quota

// Snapshot is the leave to have one snapshot. A nil one is that of nobody.
type Snapshot struct {
	keeper  *Keeper
	account *account

	// Guarded by Keeper.mu.
	bytes     int64
	transient bool
	released  bool
}

// TakeSnapshot counts in a snapshot that is about to be made. room is how many bytes the
// tenant has left for it, 0 for no limit. Transient ones, which forks have for a moment, are
// counted by themselves, with the same limit. The error is a *Refusal: only the end of
// another snapshot makes room, which no request waits for.
func (k *Keeper) TakeSnapshot(tenant string, transient bool) (s *Snapshot, room int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	s = &Snapshot{keeper: k, account: a, transient: transient}
	count := s.count()
	if most := a.limits.Snapshots; most > 0 && *count+1 > most {
		return nil, 0, a.noted(a.refuse(MaxSnapshots, float64(most), float64(*count), 1, 0))
	}
	if most := a.limits.SnapshotBytes; most > 0 {
		if room = most - a.snapshotBytes; room <= 0 {
			return nil, 0, a.noted(a.refuse(MaxSnapshotBytes, float64(most), float64(a.snapshotBytes), 1, 0))
		}
	}
	*count++
	return s, room, nil
}

// AdoptSnapshot counts in a snapshot that there is already, whatever the limits.
func (k *Keeper) AdoptSnapshot(tenant string, transient bool, bytes int64) *Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := &Snapshot{keeper: k, account: k.account(tenant), transient: transient, bytes: bytes}
	*s.count()++
	s.account.snapshotBytes += bytes
	return s
}

// count is the number that it counts in. The caller holds mu.
func (s *Snapshot) count() *int64 {
	if s.transient {
		return &s.account.transient
	}
	return &s.account.snapshots
}

// Sized says how large the snapshot has become. The error is a *Refusal for one that does
// not fit beside what has been made meanwhile, and counts with no bytes then.
func (s *Snapshot) Sized(bytes int64) error {
	if s == nil {
		return nil
	}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	a := s.account
	if s.released {
		return nil
	}
	a.snapshotBytes -= s.bytes
	s.bytes = 0
	if most := a.limits.SnapshotBytes; most > 0 && a.snapshotBytes+bytes > most {
		return a.noted(a.refuse(MaxSnapshotBytes, float64(most), float64(a.snapshotBytes), float64(bytes), 0))
	}
	s.bytes = bytes
	a.snapshotBytes += bytes
	return nil
}

// Release says that the snapshot is no more. Later calls do nothing.
func (s *Snapshot) Release() {
	if s == nil {
		return
	}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	*s.count()--
	s.account.snapshotBytes -= s.bytes
}

// noted counts a refusal.
func (a *account) noted(r *Refusal) *Refusal {
	a.refused[r.Limit]++
	return r
}
