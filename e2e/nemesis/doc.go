// Package nemesis does harm to five brokers on one database while clients work with them, and
// has their histories checked.
//
// A fleet (fleet_test.go) is five real brokers with their plugins in front of one cloud of
// package e2e/chaos/cloud, which notes what has really happened, and a PostgreSQL server with
// a standby. Each broker reaches the database, and its peers reach it, by links (package link)
// that can be cut. Clients (clients_test.go) ask any of the brokers for each thing, and write
// down what they asked and were told. The nemesis (faults_test.go) kills and stops brokers and
// the database, cuts links, and fails over. When all is well again, check_test.go has package
// model look for an order of each history, and compares what was told with the cloud's notes.
// There are only tests in here: `make nemesis` runs them.
//
// A seed tells the schedule of each thread of the nemesis and of each client. How they
// interleave is up to the machine.
package nemesis
