// Package chaos kills the real broker and its plugins, fills and slows its disks and
// has a cloud lie to it, while clients work with it, and checks afterwards that
// nothing was lost, doubled or left over.
//
// A world (world.go) is a broker with a plugin in front of a cloud (package cloud)
// that outlives both, or with several of each (failover_test.go, illness_test.go).
// Clients (client.go) do at random what tenants do and write down
// what they asked and were told (history.go). A nemesis (nemesis.go) does them harm,
// by a schedule that its seed determines. When all is quiet again, check.go compares
// what the clients were told with what is, and with all that the cloud has really
// done. There are only tests in here: `make chaos` runs them.
//
// What is told by a seed is the schedule: who is killed when and how, and what each
// client does in which order. How the processes interleave is up to the machine.
package chaos
