// Package layers makes root file systems of the layers of images, which may be hostile.
//
// A layer is unpacked once: Unpack reads its tar stream and keeps an index of it, and the
// contents of its files under numbers. No name of the layer becomes a name on this
// machine. Merge then plays the indexes of several layers in a tree in memory, with
// whiteouts, links and all, where a path can lead nowhere else. Write makes a directory
// of that tree: only there do names become names, each of them a single element below
// directories that Write has made itself, and files are hard links to the contents, so
// that images share what their layers share.
//
// What is kept of a file is what a sandbox can use that sees it read-only, as one user:
// name, content, time, and who may read and execute it. Owners, setuid, setgid and file
// capabilities, devices, pipes and sockets are not.
//
// Where images come from and which are kept is package imagestore's.
package layers
