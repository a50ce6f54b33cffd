// Package history keeps the last hour of a broker's own figures in memory, a point each
// ten seconds, for people who look at it and have nothing that scrapes its metrics.
//
// It counts nothing itself: a Recorder asks a function for what is counted elsewhere, at
// each step, and keeps the differences. Nothing of it is written to a disk, and no label is
// a tenant.
package history
