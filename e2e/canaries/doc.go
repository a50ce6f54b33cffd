// Package canaries looks for secrets where none may be. A hundred of them go into
// the configuration of a real broker, by every way there is, with a plugin that
// repeats whatever it was given; everything that comes out is searched for them, as
// they are and encoded.
package canaries
