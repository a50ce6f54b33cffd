package provider

// NameOf is the name of a sandbox that Create makes for a key.
func (p *Provider) NameOf(key string) string { return p.nameOf(key, 0) }

// ParallelLooks is how many sandboxes List looks at at once.
const ParallelLooks = parallelLooks
