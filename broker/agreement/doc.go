// Package agreement has all brokers on a database change the configuration that they share
// together, or not at all.
//
// Start with Group. A broker proposes a text (Propose), every other one that lives tries it out
// and says yes or no (Follow), and the database decides, since it alone knows who lives: a
// proposal is committed when all agree, and refused when one does not or the time is over.
// What was committed comes in force on every broker, also on one that was away.
//
// What the text means, and how it comes in force, is package reload's.
package agreement
