// Package store keeps what the broker must still know after it was killed: one
// file in the state directory, with bbolt.
//
// Start with Store. What it holds are buckets of records, named in buckets.go; what
// a record means is the business of the package that writes it. Update is durable
// when it returns: callers that come at the same time share one transaction, and so
// one wait for the disk (writer.go, groupcommit). schema.go numbers the form of the file, so that
// a newer one is refused and an older one brought up to date.
//
// Anything whose loss harms nobody stays in memory and out of here.
package store
