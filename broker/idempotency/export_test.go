package idempotency

// Bound lets a tenant have so much kept.
func (a *Answers) Bound(keys, bytes int) { a.maxKeys, a.maxBytes = keys, bytes }
