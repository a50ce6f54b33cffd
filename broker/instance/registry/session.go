package registry

// HasSession reports whether there is an instance of a session, or one that is being made or
// has not ended yet.
func (r *Registry) HasSession(tenant, session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.work[WorkKey{tenant, session}]) > 0
}
