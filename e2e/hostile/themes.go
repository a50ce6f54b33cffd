package hostile

// Theme is a folder of programs.
type Theme struct {
	Name, Title string
	// Fresh is set if each program gets an instance of its own; the others are run
	// by turns in a few.
	Fresh bool
	// Forked is set if another execution comes before each program, which is a fork
	// then: the first interpreter of an instance is none.
	Forked bool
	// Snapshots is set if programs are run with snapshots, which not every runtime has.
	Snapshots bool
	// WaysOut is set if programs are run with a network, which has an allow-list.
	WaysOut bool
}

// Themes of the corpus, in the order in which they are told.
var Themes = []Theme{
	{Name: "files", Title: "Escapes through the file system"},
	{Name: "kernel", Title: "The kernel's surface"},
	{Name: "resources", Title: "Resource bombs", Fresh: true},
	{Name: "network", Title: "The network, and sockets of the host"},
	{Name: "guest", Title: "Attacks on the guest and on waiting interpreters", Fresh: true},
	{Name: "forks", Title: "Attacks on the fork server of Python", Fresh: true, Forked: true},
	{Name: "names", Title: "Names and texts that are none", Fresh: true},
	{Name: "results", Title: "Forged results, and signals told apart"},
	{Name: "secrets", Title: "Secrets of the host and of other executions", Fresh: true},
	{Name: "executions", Title: "What one execution leaves to the next"},
	{Name: "sessions", Title: "What one session leaves to another", Fresh: true},
	{Name: "one_shots", Title: "What one one-shot leaves to the next of its tenant"},
	{Name: "ways_out", Title: "A network with a list of what may be reached, and what could get around it", WaysOut: true},
	{Name: "snapshots", Title: "Snapshots that are taken at a bad moment, and what a copy finds", Fresh: true, Snapshots: true},
	{Name: "controls", Title: "What must work, so that no probe is blind", Fresh: true},
}
