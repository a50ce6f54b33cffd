// Package seal encrypts single values of the configuration, so that a secret can
// stand in a file that others may read: in version control, in a ticket, in a
// backup. Start with Keyring.
//
// A sealed value is text, sb1:KEY:DATA. KEY is the id of the key that sealed it,
// DATA is base64url of nonce, ciphertext and tag of AES-256-GCM. Form and key id
// are authenticated. The place of a value in the configuration is not: who may
// write the file can send a secret wherever they like by other settings, and a
// block can be renamed or moved.
//
// Not here: the function sealed() and where its keys come from (package config),
// and the commands (cmd/sandbox-broker).
package seal
