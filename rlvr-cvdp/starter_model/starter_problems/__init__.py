"""Small Verilog problems in CVDP's form, and the corpus of the model that starts on them."""
