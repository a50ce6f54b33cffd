package instance

// CountByState says how many instances of all tenants there are, by what they are
// doing: creating, live, paused or ending. Those of which nobody knows what their
// creation has left are creating.
func (s *Service) CountByState() map[string]int {
	counts := map[string]int{"creating": 0, "live": 0, "paused": 0, "ending": 0}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		switch {
		case e.state == creating, e.state == unsettled:
			counts["creating"]++
		case e.state == ending:
			counts["ending"]++
		case e.paused:
			counts["paused"]++
		default:
			counts["live"]++
		}
	}
	return counts
}
