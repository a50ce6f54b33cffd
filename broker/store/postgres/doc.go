// Package postgres keeps the state of a broker in PostgreSQL, where package store keeps it
// in a file: the same buckets of records, behind the same transactions (store.Tx).
//
// Start with Open. A broker writes its records alone: it holds a lease on its row in the
// table sandbox_broker, with an epoch that each holder counts on (lease.go), and every
// transaction begins with the proof that the lease is still its own. So nothing that a
// process writes which was stopped, or cut off from the database, comes after what its
// successor has written. Updates that come at the same time share one transaction, and that
// is one round trip (writer.go). The tables are those of migrations/, which goose brings up
// to date.
//
// What the records mean is the business of the packages that write them.
package postgres
