// Package volumes keeps files on this machine beyond the sandboxes that use them.
//
// A volume is an ext4 file system in a file of a fixed size, all of which is taken from the
// disk when the volume is made: what code writes cannot fill the disk of the machine, in
// bytes or in inodes. It is mounted, without devices and without set-user-ID bits, as long
// as somebody uses it, in a mount namespace that ends with this process, so that no mount
// is left behind however the process ends. Only the kernel of this machine writes the file
// system itself; code in a sandbox has files in it, and nothing below.
//
// Several processes may have the same Store at a time, as during an upgrade: locks on files
// say what is in use, and the kernel gives one loop device to all of them.
//
// Start with Store. For root only.
package volumes
