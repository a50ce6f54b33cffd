package names

// Answer is the reply to a query.
var Answer = answer

// Listeners is how many ports of all names are listened at, and fails where that is miscounted.
func (n *Names) Listeners() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	counted := 0
	for _, e := range n.known {
		counted += len(e.listeners)
	}
	if counted != n.listens || len(n.known) > maxNames+1 {
		panic("names are miscounted")
	}
	return counted
}
