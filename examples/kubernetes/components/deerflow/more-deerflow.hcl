# The URLs of sandboxes begin with the host by which DeerFlow's gateway asks for them, such as
# http://sandbox-broker.sandbox-broker:9385/deerflow.
front_door "deerflow" {}
