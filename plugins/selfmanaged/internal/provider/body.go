package provider

import "sync"

// body is where an instance is: in a sandbox, or aside on the disk.
type body struct {
	mu sync.Mutex
	// in is the sandbox, and the last one of an instance that is aside.
	in    *sandbox
	aside *aside // nil while it is in a sandbox
	ended bool
	gone  chan struct{} // closed at the end
}

// sandbox is the one that the instance is in. Of an instance that is aside it has ended.
func (b *body) sandbox() *sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.in
}

// isAside is where the instance is on the disk; nil if it is in a sandbox.
func (b *body) isAside() *aside {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.aside
}

// putAside has the instance be on the disk, and its sandbox end without it. It says whether
// that is so: an instance that has ended meanwhile stays ended, with its sandbox.
func (b *body) putAside(a *aside) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.aside = a
	b.in.left.Store(true)
	return true
}

// bringBack has the instance be in a new sandbox, unless it has ended meanwhile.
func (b *body) bringBack(s *sandbox) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.in, b.aside = s, nil
	return true
}

// finish ends the instance, once, and returns what its caller has to remove: the sandbox, or where it
// is aside that alone.
func (b *body) finish() (*sandbox, *aside) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	close(b.gone)
	return b.in, b.aside
}
