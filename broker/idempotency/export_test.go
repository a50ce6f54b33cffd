package idempotency

// Bound lets a tenant have so much kept.
func (a *Answers) Bound(keys, bytes int) { a.maxKeys, a.maxBytes = keys, bytes }

// BoundGroup lets a group of a tenant's keys have so many.
func (a *Answers) BoundGroup(keys int) { a.maxGroup = keys }
